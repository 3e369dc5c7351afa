package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// series is one thing that is measured again and again.
type series struct {
	b *testing.B

	Name    string    `json:"name"`
	Unit    string    `json:"unit"`
	Samples []float64 `json:"samples"`
}

func newSeries(b *testing.B, name, unit string) *series {
	b.Helper()
	return &series{b: b, Name: name, Unit: unit}
}

func (s *series) add(d time.Duration)  { s.addMillis(float64(d.Microseconds()) / 1000) }
func (s *series) addMillis(ms float64) { s.addValue(ms) }
func (s *series) addValue(v float64)   { s.Samples = append(s.Samples, v) }

// percentile is the value at the ceiling rank.
func (s *series) percentile(p float64) float64 {
	sorted := slices.Sorted(slices.Values(s.Samples))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// report puts the percentiles into the benchmark's line and keeps the samples.
func (s *series) report() {
	s.b.Helper()
	s.b.ReportMetric(0, "ns/op")
	s.b.ReportMetric(s.percentile(0.50), "p50-"+s.Name+"-"+s.Unit)
	s.b.ReportMetric(s.percentile(0.95), "p95-"+s.Name+"-"+s.Unit)
	kept.Lock()
	defer kept.Unlock()
	kept.all = append(kept.all, s)
}

// kept holds the results until the report is written: benchmarks have no other
// way to hand them to TestMain.
//
//nolint:gochecknoglobals // see above
var kept struct {
	sync.Mutex

	all []*series
}

// writeReport prints the table and writes the raw samples to
// build/bench/results.json, or where PANDO_BENCH_OUT says.
func writeReport() error {
	kept.Lock()
	defer kept.Unlock()
	if len(kept.all) == 0 {
		return nil
	}
	fmt.Printf("\n%-28s %5s %10s %10s %10s %10s\n", "measured", "N", "p50", "p95", "least", "most")
	for _, s := range kept.all {
		fmt.Printf("%-28s %5d %7.1f %-2s %7.1f %-2s %7.1f %-2s %7.1f %-2s\n", s.Name, len(s.Samples),
			s.percentile(0.5), s.Unit, s.percentile(0.95), s.Unit, slices.Min(s.Samples), s.Unit, slices.Max(s.Samples), s.Unit)
	}
	return writeRaw()
}

func writeRaw() error {
	path := os.Getenv("PANDO_BENCH_OUT")
	if path == "" {
		path = filepath.Join("..", "..", "build", "bench", "results.json")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("keep results: %w", err)
	}
	data, err := json.MarshalIndent(map[string]any{
		"version": 1, "time": time.Now().UTC(), "cpus": runtime.NumCPU(), "results": kept.all,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("keep results: %w", err)
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

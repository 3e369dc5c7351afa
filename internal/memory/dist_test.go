package memory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func BenchmarkDist(b *testing.B) {
	q := benchQEMU(b, b.TempDir(), 1<<30, 400)
	var fs, ts []time.Duration
	for b.Loop() {
		t0 := time.Now()
		frozen, err := q.control().Fork(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		if err := frozen.Close(); err != nil {
			b.Fatal(err)
		}
		t2 := time.Now()
		fs, ts = append(fs, t1.Sub(t0)), append(ts, t2.Sub(t1))
	}
	for _, s := range [][]time.Duration{fs, ts} {
		slices.Sort(s)
		fmt.Println(s[0], s[len(s)/2], s[len(s)*9/10], s[len(s)-1])
	}
}

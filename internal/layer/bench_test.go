package layer_test

import (
	"testing"

	"github.com/pandovm/pando/internal/layer"
)

// BenchmarkSync measures how long a fresh layer of 200 MB takes to be durable.
func BenchmarkSync(b *testing.B) {
	s := open(b)
	content := make([]byte, 200<<20)
	for i := range content {
		content[i] = byte(i * i >> 8)
	}
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		b.StopTimer()
		l := write(b, s, string(content))
		b.StartTimer()
		if _, err := s.Sync(b.Context(), l); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Forget(l.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkVerify measures the one reading of a layer of 200 MB per process.
func BenchmarkVerify(b *testing.B) {
	first := open(b)
	l, err := first.Sync(b.Context(), write(b, first, string(make([]byte, 200<<20))))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(l.Bytes)
	for b.Loop() {
		s, err := layer.Open(first.Dir())
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Verify(b.Context(), l); err != nil {
			b.Fatal(err)
		}
	}
}

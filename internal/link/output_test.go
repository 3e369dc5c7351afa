package link_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/link"
)

func TestOutputRoundTrip(t *testing.T) {
	t.Parallel()
	want := link.Output{Stream: link.Stderr, Seq: 3, Offset: 1 << 40, Data: []byte("x\x00y")}
	kind, payload, err := link.NewFrameReader(bytes.NewReader(link.AppendOutput(nil, want))).Next()
	if err != nil || kind != link.FrameOutput {
		t.Fatal(kind, err)
	}
	got, err := link.ParseOutput(payload)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOrdersMayBeLonger(t *testing.T) {
	t.Parallel()
	long := link.AppendFrame(nil, link.FrameOrder, make([]byte, link.MaxOrder))
	if _, _, err := link.NewOrderReader(bytes.NewReader(long)).Next(); err != nil {
		t.Error(err)
	}
	if _, _, err := link.NewFrameReader(bytes.NewReader(long)).Next(); err == nil {
		t.Error("any frame may be as long as an order")
	}
	if _, _, err := link.NewOrderReader(bytes.NewReader(link.AppendFrame(nil, link.FrameOrder, make([]byte, link.MaxOrder+1)))).Next(); err == nil {
		t.Error("orders have no bound")
	}
}

func FuzzOutput(f *testing.F) {
	f.Add(link.AppendOutput(nil, link.Output{Stream: link.Stdout, Seq: 1, Data: []byte("a")})[link.FrameHeader:])
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 30))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := link.ParseOutput(b)
		if err != nil {
			return
		}
		if o.Seq < 1 || o.Offset < 0 || o.Offset+int64(len(o.Data)) < 0 {
			t.Fatalf("impossible output %+v", o)
		}
		if again := link.AppendOutput(nil, o)[link.FrameHeader:]; !bytes.Equal(again, b) {
			t.Fatal("output changed on the way")
		}
	})
}

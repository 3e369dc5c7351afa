package layer_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
	"github.com/pandovm/pando/internal/layer"
)

func synced(t *testing.T, s *layer.Store, content string) layer.Layer {
	t.Helper()
	l, err := s.Sync(t.Context(), write(t, s, content))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// overwrite changes the content of a layer as a broken disk would.
func overwrite(t *testing.T, s *layer.Store, id layer.ID, content string) {
	t.Helper()
	if err := os.Chmod(s.Path(id), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Path(id), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	// A later time, whatever the clock of the file system resolves.
	if err := os.Chtimes(s.Path(id), time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
}

func TestSync(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := synced(t, s, "content")
	sum := sha256.Sum256([]byte("content"))
	if l.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("checksum %q", l.SHA256)
	}
	if again, err := s.Sync(t.Context(), l); err != nil || again != l {
		t.Errorf("a second Sync gave %v, %v", again, err)
	}
	overwrite(t, s, l.ID, "CONTENT")
	if _, err := s.Sync(t.Context(), l); !fault.HasReason(err, api.ReasonSnapshotCorrupt) {
		t.Errorf("Sync of a changed layer: %v", err)
	}
	wrong := l
	wrong.Bytes = 3
	if _, err := s.Sync(t.Context(), wrong); err == nil {
		t.Error("Sync of a layer with the wrong size did not fail")
	}
	if _, err := s.Sync(t.Context(), layer.Layer{ID: layer.NewID()}); err == nil {
		t.Error("Sync of a missing layer did not fail")
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, s *layer.Store, l layer.Layer)
		fails  bool
	}{
		{"intact", func(*testing.T, *layer.Store, layer.Layer) {}, false},
		{"missing", func(t *testing.T, s *layer.Store, l layer.Layer) {
			t.Helper()
			if err := os.Remove(s.Path(l.ID)); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"truncated", func(t *testing.T, s *layer.Store, l layer.Layer) {
			t.Helper()
			overwrite(t, s, l.ID, "cont")
		}, true},
		{"grown", func(t *testing.T, s *layer.Store, l layer.Layer) {
			t.Helper()
			overwrite(t, s, l.ID, "content and more")
		}, true},
		{"altered", func(t *testing.T, s *layer.Store, l layer.Layer) {
			t.Helper()
			overwrite(t, s, l.ID, "c0ntent")
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			first := open(t)
			l := synced(t, first, "content")
			// The store that synced it remembers it, a new one has to read it.
			second, err := layer.Open(first.Dir())
			if err != nil {
				t.Fatal(err)
			}
			c.damage(t, first, l)
			for _, s := range []*layer.Store{first, second, second} {
				err := s.Verify(t.Context(), l)
				if !c.fails {
					if err != nil {
						t.Error(err)
					}
					continue
				}
				f := fault.As(err)
				if f == nil || f.Code != api.CodeConflict || f.Reason != api.ReasonSnapshotCorrupt || f.Remedy == "" {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

func TestVerifyWithoutChecksum(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := write(t, s, "content")
	if err := s.Verify(t.Context(), l); err != nil {
		t.Error(err)
	}
	l.Bytes++
	if err := s.Verify(t.Context(), l); !fault.HasReason(err, api.ReasonSnapshotCorrupt) {
		t.Errorf("wrong size: %v", err)
	}
}

func TestVerifyOfManyAtOnce(t *testing.T) {
	t.Parallel()
	first := open(t)
	content := string(make([]byte, 8<<20))
	l := synced(t, first, content)
	s, err := layer.Open(first.Dir())
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Verify(cancelled, l); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := s.Verify(t.Context(), l); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := s.Sync(cancelled, l); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled Sync: %v", err)
	}
}

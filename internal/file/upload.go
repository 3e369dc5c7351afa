package file

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/pandovm/pando/internal/fault"
)

// sums are the running checksums of uploads. Losing one costs time, not truth.
type sums struct {
	mu    sync.Mutex
	known map[sumKey]*sum
}

type sumKey struct{ vm, upload string }

// sum is the checksum of the first n bytes of an upload.
type sum struct {
	want string
	hash hash.Hash
	n    int64
	used time.Time
}

const (
	// maxSums bounds the checksums kept; sumAge is when one has surely expired.
	maxSums = 4096
	sumAge  = 2 * time.Hour
)

// uploadID tells ids apart from everything else. The wanted checksum is part of
// the id: so it lasts as long as the upload does.
var uploadID = regexp.MustCompile(`^up-[0-9a-f]{32}(-[0-9a-f]{64})?$`)

func newUploadID(sha string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // It never fails.
	id := "up-" + hex.EncodeToString(b[:])
	if sha != "" {
		id += "-" + sha
	}
	return id
}

// wanted returns the checksum that an upload's content must have, or nothing.
func wanted(upload string) string {
	const short = len("up-") + 32
	if len(upload) > short {
		return upload[short+1:]
	}
	return ""
}

func checkUploadID(upload string) error {
	if uploadID.MatchString(upload) {
		return nil
	}
	return noUpload()
}

// OpenUpload starts an upload in parts.
func (s *Service) OpenUpload(ctx context.Context, ref string, w Write) (u Upload, err error) {
	if w, err = checkWrite(w); err != nil {
		return Upload{}, err
	}
	switch {
	case w.Size < 0:
		return Upload{}, fault.BadField("size", "is negative").Hint("send the length of the whole content")
	case w.Size > MaxFile:
		return Upload{}, fault.BadField("size", "is more than %d", int64(MaxFile)).Hint("split the file")
	}
	err = s.use(ctx, ref, func(id string) error {
		upload := newUploadID(w.SHA256)
		if u, err = s.node.UploadOpen(ctx, id, upload, w); err != nil {
			return err
		}
		if w.SHA256 != "" {
			s.sums.put(sumKey{id, upload}, &sum{want: w.SHA256, hash: sha256.New()})
		}
		return nil
	})
	return u, err
}

// WriteUpload adds a chunk of size bytes (-1 if nobody knows) at an offset. It
// counts as a whole or not at all.
func (s *Service) WriteUpload(ctx context.Context, ref, upload string, offset, size int64, content io.Reader) (u Upload, err error) {
	if err := checkUploadID(upload); err != nil {
		return Upload{}, err
	}
	over := func() error { return tooLarge("the chunk", MaxChunk) }
	if size > MaxChunk {
		return Upload{}, over()
	}
	if offset < 0 {
		return Upload{}, fault.BadField("offset", "is negative").Hint("send the upload's receivedBytes")
	}
	err = s.use(ctx, ref, func(id string) error {
		key := sumKey{id, upload}
		chunk := &checkedReader{r: content, left: MaxChunk, over: over, sum: s.sums.fork(key, offset)}
		if u, err = s.node.UploadWrite(ctx, id, upload, offset, chunk); err != nil {
			return err
		}
		if chunk.sum != nil && u.Received == offset+chunk.n {
			s.sums.put(key, &sum{want: wanted(upload), hash: chunk.sum, n: u.Received})
		}
		return nil
	})
	return u, err
}

// Upload returns the state of an upload.
func (s *Service) Upload(ctx context.Context, ref, upload string) (u Upload, err error) {
	if err := checkUploadID(upload); err != nil {
		return Upload{}, err
	}
	err = s.use(ctx, ref, func(id string) error {
		u, err = s.node.UploadStatus(ctx, id, upload)
		return err
	})
	return u, err
}

// AbortUpload ends an upload and removes what it had received.
func (s *Service) AbortUpload(ctx context.Context, ref, upload string) error {
	if err := checkUploadID(upload); err != nil {
		return err
	}
	return s.use(ctx, ref, func(id string) error {
		s.sums.forget(sumKey{id, upload})
		return s.node.UploadAbort(ctx, id, upload)
	})
}

// CommitUpload checks that everything has arrived as it was sent and puts it in
// its place. If it fails the upload remains.
func (s *Service) CommitUpload(ctx context.Context, ref, upload string) error {
	if err := checkUploadID(upload); err != nil {
		return err
	}
	return s.use(ctx, ref, func(id string) error {
		if err := s.verify(ctx, id, upload); err != nil {
			return err
		}
		if err := s.node.UploadCommit(ctx, id, upload); err != nil {
			return err
		}
		s.sums.forget(sumKey{id, upload})
		return nil
	})
}

// verify compares the checksum, if one was announced.
func (s *Service) verify(ctx context.Context, id, upload string) error {
	want := wanted(upload)
	if want == "" {
		return nil
	}
	u, err := s.node.UploadStatus(ctx, id, upload)
	if err != nil || u.Received != u.Size {
		return err // the guest refuses what is incomplete
	}
	got := s.sums.fork(sumKey{id, upload}, u.Size)
	if got == nil {
		if got, err = s.readBack(ctx, id, upload); err != nil {
			return err
		}
	}
	if hex.EncodeToString(got.Sum(nil)) != want {
		return checksumMismatch()
	}
	return nil
}

// readBack computes a checksum from what the guest has received: another daemon
// may have taken the first chunks.
func (s *Service) readBack(ctx context.Context, id, upload string) (hash.Hash, error) {
	c, err := s.node.UploadRead(ctx, id, upload)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	_, err = c.WriteTo(h)
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, fmt.Errorf("read the upload back: %w", err)
	}
	return h, nil
}

// fork returns a copy of the checksum of the first n bytes, or nil if that is not
// known.
func (s *sums) fork(key sumKey, n int64) hash.Hash {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[key]
	if known == nil || known.n != n {
		return nil
	}
	known.used = time.Now()
	cloner, ok := known.hash.(hash.Cloner)
	if !ok {
		return nil
	}
	c, err := cloner.Clone()
	if err != nil {
		return nil
	}
	return c
}

func (s *sums) put(key sumKey, v *sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.used = time.Now()
	if len(s.known) >= maxSums {
		for k, old := range s.known {
			if time.Since(old.used) > sumAge {
				delete(s.known, k)
			}
		}
	}
	if s.known[key] != nil || len(s.known) < maxSums {
		s.known[key] = v
	}
}

func (s *sums) forget(key sumKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key)
}

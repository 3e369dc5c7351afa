package pando

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pandovm/pando/api"
)

const (
	// UploadChunk is how much Upload sends at once.
	UploadChunk = 16 << 20
	// uploadAttempts is how often each chunk is tried.
	uploadAttempts = 5
)

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

// Upload replaces a file by size bytes of r in chunks, each of which is repeated
// if the connection breaks, so that it survives a bad line and a restart of the
// daemon. The file changes at the end, at once. Progress, if not nil, is called
// with what has arrived, after each chunk. A failed upload leaves nothing behind
// in the guest.
func (f *Files) Upload(ctx context.Context, path string, r io.ReaderAt, size int64, o FileOptions, progress func(received int64)) error {
	q := api.CreateUploadRequest{Path: path, Size: size, SHA256: o.SHA256, Owner: o.Owner, Group: o.Group}
	if o.Mode != 0 {
		q.Mode = unixMode(o.Mode)
	}
	u, err := fileCall[api.Upload](ctx, f, http.MethodPost, "uploads", nil, q)
	if err != nil {
		return err
	}
	err = f.sendChunks(ctx, u, r, progress)
	if err == nil {
		_, err = fileCall[nothing](ctx, f, http.MethodPost, "uploads/"+url.PathEscape(u.UploadID)+"/commit", nil, struct{}{})
	}
	if err != nil {
		// Detached: giving up must leave nothing behind.
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, _ = fileCall[nothing](ended, f, http.MethodDelete, "uploads/"+url.PathEscape(u.UploadID), nil, nil)
	}
	return err
}

func (f *Files) sendChunks(ctx context.Context, u api.Upload, r io.ReaderAt, progress func(int64)) error {
	for at := u.ReceivedBytes; at < u.Size; {
		next, err := f.sendChunk(ctx, u, r, at)
		if err != nil {
			return err
		}
		at = next
		if progress != nil {
			progress(at)
		}
	}
	return nil
}

// sendChunk sends the chunk at an offset until it has arrived, and returns where
// the next one begins.
func (f *Files) sendChunk(ctx context.Context, u api.Upload, r io.ReaderAt, at int64) (int64, error) {
	verb := "uploads/" + url.PathEscape(u.UploadID)
	size := min(UploadChunk, u.Size-at)
	for attempt := 1; ; attempt++ {
		q := url.Values{"offset": {strconv.FormatInt(at, 10)}}
		resp, err := f.stream(ctx, http.MethodPut, verb, q, io.NewSectionReader(r, at, size), size, nil)
		if err == nil {
			return at + size, resp.Body.Close()
		}
		if attempt == uploadAttempts || !worthRepeating(err) {
			return at, err
		}
		if err := pause(ctx, attempt); err != nil {
			return at, err
		}
		if now, err := fileCall[api.Upload](ctx, f, http.MethodGet, verb, nil, nil); err == nil && now.ReceivedBytes > at {
			return now.ReceivedBytes, nil
		}
	}
}

// worthRepeating tells whether a chunk may arrive if it is sent again.
func worthRepeating(err error) bool {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Status >= 500 || e.Status == http.StatusRequestTimeout || e.Status == http.StatusConflict || e.Status == http.StatusTooManyRequests
	}
	_, ok := errors.AsType[*TransportError](err)
	return ok
}

func pause(ctx context.Context, attempt int) error {
	t := time.NewTimer(min(500*time.Millisecond<<(attempt-1), 8*time.Second))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

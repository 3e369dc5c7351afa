package operation

import (
	"github.com/google/uuid"
)

// Answer is a finished answer to a request, independent of any connection.
type Answer struct {
	Status int
	// Header has canonical names.
	Header map[string][]string
	Body   []byte
	// RequestID is the id of the request that was carried out.
	RequestID string
	// Err is what the request failed with, for the log; it is not stored.
	Err error
	// Replayed is true if the request was carried out earlier.
	Replayed bool
}

// size is about what the answer occupies in memory, in bytes.
func (a Answer) size() int {
	n := len(a.Body) + len(a.RequestID)
	for name, values := range a.Header {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

func newID() string { return uuid.NewString() }

package layer

import (
	"errors"
	"fmt"
	"os"
)

// Draft is a layer that is being written. It has one user at a time.
type Draft struct {
	store *Store
	id    ID
	kind  Kind
	file  *os.File
}

// Create starts a layer under its final name, readable by its owner only. The
// caller ends the Draft with Seal or Discard.
func (s *Store) Create(kind Kind) (*Draft, error) {
	if !kind.Valid() {
		return nil, fmt.Errorf("create layer: no kind %q", kind)
	}
	id := NewID()
	s.markFresh(id)
	f, err := os.OpenFile(s.Path(id), os.O_RDWR|os.O_CREATE|os.O_EXCL, draftMode)
	if err != nil {
		return nil, errors.Join(s.Full(0, fmt.Errorf("create layer: %w", err)), s.Forget(id))
	}
	return &Draft{store: s, id: id, kind: kind, file: f}, nil
}

// ID returns the id that the layer will have.
func (d *Draft) ID() ID { return d.id }

// File returns the open file, for reading and writing. The Draft closes it.
func (d *Draft) File() *os.File { return d.file }

// Store returns the store that the layer will be in.
func (d *Draft) Store() *Store { return d.store }

// Seal makes the layer immutable and closes the file. The layer can be used at
// once; it survives a crash only after Store.Sync. On error the draft is
// discarded.
func (d *Draft) Seal() (Layer, error) {
	info, err := d.file.Stat()
	if err == nil {
		err = d.file.Chmod(frozenMode)
	}
	if err == nil {
		err = d.file.Close()
	}
	if err != nil {
		return Layer{}, errors.Join(fmt.Errorf("seal layer: %w", err), d.Discard())
	}
	return Layer{ID: d.id, Kind: d.kind, Bytes: info.Size()}, nil
}

// Discard removes the file. It does nothing to a layer that somebody holds, and
// may follow a failed or a successful Seal.
func (d *Draft) Discard() error {
	err := d.file.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return errors.Join(err, d.store.Forget(d.id))
}

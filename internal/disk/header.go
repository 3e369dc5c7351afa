package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Fields of a qcow2 header (version 3), big-endian; see QEMU's docs/interop/qcow2.txt.
const (
	qcow2Magic      = 0x514649fb
	headerBytes     = 104
	maxBackingName  = 1023
	minClusterBits  = 9
	maxClusterBits  = 21
	featureDataFile = 1 << 2
	maxHeaderRead   = 64 << 10
)

// Info is what the header of a qcow2 file says. BackingFile is as recorded,
// relative to the file's folder unless it is absolute, and empty if there is
// none. AllocatedBytes is what the file takes on disk.
type Info struct {
	VirtualSize    int64
	BackingFile    string
	ClusterSize    int64
	AllocatedBytes int64
}

// Info reads the header of the qcow2 file at path and nothing else: it opens
// neither backing files nor whatever a hostile header points at, and refuses
// images whose data is in another file.
func (d *Driver) Info(ctx context.Context, path string) (Info, error) {
	if ctx.Err() != nil {
		return Info{}, context.Cause(ctx)
	}
	// A VM may have put anything there: a pipe would block, a link lead away.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return Info{}, fmt.Errorf("read disk header: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close() //nolint:errcheck // read only
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Info{}, fmt.Errorf("read disk header: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Info{}, fmt.Errorf("read disk header: %s is not a regular file", path)
	}
	b := make([]byte, maxHeaderRead)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Info{}, fmt.Errorf("read disk header: %w", err)
	}
	info, err := parseHeader(b[:n])
	if err != nil {
		return Info{}, fmt.Errorf("read disk header of %s: %w", path, err)
	}
	info.AllocatedBytes = st.Blocks * 512
	return info, nil
}

// parseHeader reads the start of a qcow2 file.
func parseHeader(b []byte) (Info, error) {
	offset, length, err := backingName(b)
	if err != nil {
		return Info{}, err
	}
	size := binary.BigEndian.Uint64(b[24:])
	if size > uint64(maxDiskBytes) {
		return Info{}, fmt.Errorf("qcow2: a disk of %d bytes is not possible", size)
	}
	return Info{
		VirtualSize: int64(size),
		BackingFile: string(b[offset : offset+length]),
		ClusterSize: 1 << binary.BigEndian.Uint32(b[20:]),
	}, nil
}

// backingName returns where the name of the backing file is in the header.
func backingName(b []byte) (offset, length int, err error) {
	if len(b) < headerBytes || binary.BigEndian.Uint32(b) != qcow2Magic {
		return 0, 0, errors.New("qcow2: no header")
	}
	if v := binary.BigEndian.Uint32(b[4:]); v != 3 {
		return 0, 0, fmt.Errorf("qcow2: version %d is not supported", v)
	}
	if bits := binary.BigEndian.Uint32(b[20:]); bits < minClusterBits || bits > maxClusterBits {
		return 0, 0, fmt.Errorf("qcow2: clusters of 2^%d bytes", bits)
	}
	if binary.BigEndian.Uint32(b[32:]) != 0 {
		return 0, 0, errors.New("qcow2: encrypted images are not supported")
	}
	if binary.BigEndian.Uint64(b[72:])&featureDataFile != 0 {
		return 0, 0, errors.New("qcow2: images with a separate data file are not supported")
	}
	at, n := binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:])
	if at == 0 || n == 0 {
		return 0, 0, nil
	}
	if n > maxBackingName || at < headerBytes || at > uint64(len(b)) || uint64(len(b))-at < uint64(n) {
		return 0, 0, errors.New("qcow2: the name of the backing file is out of bounds")
	}
	return int(at), int(n), nil
}

package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/http2"
	"github.com/pandovm/pando/internal/agent/sysfile"
	"github.com/pandovm/pando/internal/link"
)

// readBuffer is how much is read at once. A file that ends within the first
// buffer is sent with the length that it has, whatever its size is said to be:
// files of /proc and /sys say anything.
const readBuffer = 64 << 10

func (r *request) read() error {
	p, err := checked(r.order.Path)
	if err != nil {
		return err
	}
	fd, st, err := openFile(p)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	return r.sendFile(p, fd, st)
}

// openFile opens a regular file for reading. It looks before it opens, since
// opening a device may do something, and opens so that it never waits.
func openFile(p string) (int, *syscall.Stat_t, error) {
	st, err := sysfile.Stat(p, true)
	if err != nil {
		return -1, nil, at(p, err)
	}
	if err := wantRegular(p, st.Mode); err != nil {
		return -1, nil, err
	}
	fd, err := sysfile.Open(p, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return -1, nil, at(p, err)
	}
	if err = syscall.Fstat(fd, &st); err == nil {
		err = wantRegular(p, st.Mode)
	}
	if err != nil {
		return -1, nil, errors.Join(at(p, err), syscall.Close(fd))
	}
	return fd, &st, nil
}

func wantRegular(p string, mode uint32) error {
	if kind(mode) == link.ModeFile {
		return nil
	}
	return refuse(link.FileNotAFile, p, "%s", kindName(mode))
}

func kindName(mode uint32) string {
	switch kind(mode) {
	case link.ModeFile:
		return "a regular file"
	case link.ModeDir:
		return "a folder"
	case link.ModeSymlink:
		return "a symbolic link"
	case link.ModeFifo:
		return "a FIFO"
	case link.ModeSocket:
		return "a socket"
	case link.ModeChar, link.ModeBlock:
		return "a device"
	}
	return "of an unknown type"
}

// sendFile sends the range of the order.
func (r *request) sendFile(p string, fd int, st *syscall.Stat_t) error {
	buf := make([]byte, link.FrameHeader+readBuffer)
	n, ended, err := readFirst(fd, buf[link.FrameHeader:], st.Size)
	if err != nil {
		return at(p, err)
	}
	info := r.info("", st)
	switch {
	case ended:
		info.Size = int64(n)
	case info.Size < int64(n):
		info.Size = -1
	}
	offset, length, err := r.span(p, info.Size)
	if err != nil {
		return err
	}
	info.Offset, info.Length = offset, length
	if err := r.sendInfo(info); err != nil {
		return err
	}
	return sendRange(r.st, p, fd, buf, n, offset, length)
}

// readFirst reads the beginning of a file and tells whether that is all.
func readFirst(fd int, buf []byte, size int64) (n int, ended bool, err error) {
	for n < len(buf) {
		if size > int64(len(buf)) && n > 0 {
			return n, false, nil // it is surely no file of the kind that lies
		}
		m, err := preadOnce(fd, buf[n:], int64(n))
		if err != nil {
			return n, false, err
		}
		if m == 0 {
			return n, true, nil
		}
		n += m
	}
	return n, false, nil
}

func preadOnce(fd int, p []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(fd, p, off)
		if !errors.Is(err, unix.EINTR) {
			return max(0, n), err
		}
	}
}

// span returns what of a file of that size is asked for; a size and a length of
// -1 mean that nobody knows.
func (r *request) span(p string, size int64) (offset, length int64, err error) {
	offset, length = r.order.Offset, r.order.Length
	if size < 0 {
		return 0, -1, nil
	}
	switch {
	case offset < 0: // the last bytes
		length = min(length, size)
		offset = size - length
		if length <= 0 {
			return 0, 0, outside(p, size)
		}
	case offset > 0 && offset >= size:
		return 0, 0, outside(p, size)
	case length < 0 || length > size-offset:
		length = size - offset
	}
	return offset, length, nil
}

func outside(p string, size int64) error {
	return &refusal{link.FileRefusal{Cause: link.FileRange, Path: p, Size: size, Text: "nothing of the range is in the file"}}
}

// sendRange sends length bytes from offset, or all if length is -1. The buffer has
// room for a frame's head and then holds the first n bytes of the file.
func sendRange(st *http2.Stream, p string, fd int, buf []byte, n int, offset, length int64) error {
	if offset < int64(n) {
		end := int64(n)
		if length >= 0 {
			end = min(end, offset+length)
		}
		copy(buf[link.FrameHeader:], buf[link.FrameHeader+offset:link.FrameHeader+end])
		n = int(end - offset)
	} else {
		n = 0
	}
	for at64 := offset; ; {
		if n > 0 {
			if err := sendData(st, buf, n); err != nil {
				return err
			}
			at64 += int64(n)
			if length >= 0 {
				length -= int64(n)
			}
		}
		if length == 0 {
			return nil
		}
		want := len(buf) - link.FrameHeader
		if length > 0 {
			want = int(min(int64(want), length))
		}
		var err error
		n, err = preadOnce(fd, buf[link.FrameHeader:link.FrameHeader+want], at64)
		switch {
		case err != nil:
			return at(p, err)
		case n == 0 && length > 0:
			return refuse(link.FileIncomplete, p, "the file has become shorter while it was read")
		case n == 0:
			return nil
		}
	}
}

// sendData sends the n bytes in the buffer behind the room for the head.
func sendData(st *http2.Stream, buf []byte, n int) error {
	buf[0] = byte(link.FrameFileData)
	binary.BigEndian.PutUint32(buf[1:], uint32(n))
	if _, err := st.Write(buf[:link.FrameHeader+n]); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

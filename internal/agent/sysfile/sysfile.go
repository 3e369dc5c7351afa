// Package sysfile reads and writes small files with less code than package os:
// an os.File asks the poller whether it wants the file, and the files here are
// read and written in the first moments of a restored VM, when each new piece of
// code is dear. It keeps no state and may be used concurrently.
//
// internal/agent and the packages below it import it; nothing else may.
package sysfile

import (
	"errors"
	"os"
	"strings"
	"syscall"
)

// Read returns the content of a file.
func Read(path string) ([]byte, error) {
	fd, err := Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	b := make([]byte, 0, 4096)
	for {
		n, err := syscall.Read(fd, b[len(b):cap(b)])
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		case n <= 0:
			return b, nil
		default:
			b = b[:len(b)+n]
			if len(b) == cap(b) {
				b = append(b, 0)[:len(b)]
			}
		}
	}
}

// ReadUpTo returns the beginning of a file, of at most limit bytes.
func ReadUpTo(path string, limit int) ([]byte, error) {
	fd, err := Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	b := make([]byte, limit)
	got := 0
	for got < limit {
		n, err := syscall.Read(fd, b[got:])
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n <= 0 {
			break
		}
		got += n
	}
	return b[:got], nil
}

// Replace writes a file so that readers see the old content or the new, or
// for a moment no file, and nothing in between. Where the disk has no room left
// for another file it writes over the old one, whose room is there: a short
// file that is half new is the lesser evil.
func Replace(path, data string, mode uint32) error {
	err := replace(path, data, mode)
	if errors.Is(err, syscall.ENOSPC) && IsRegular(path) {
		return overwrite(path, data, mode)
	}
	return err
}

func overwrite(path, data string, mode uint32) error {
	fd, err := Open(path, syscall.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = WriteAll(fd, data)
	if err == nil {
		err = syscall.Ftruncate(fd, int64(len(data)))
	}
	if err == nil {
		err = syscall.Fchmod(fd, mode)
	}
	if closeErr := syscall.Close(fd); err == nil {
		err = closeErr
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func replace(path, data string, mode uint32) error {
	slash := strings.LastIndexByte(path, '/') + 1
	temp := path[:slash] + "." + path[slash:] + ".pando"
	fd, err := Open(temp, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC, mode)
	if err != nil {
		return err
	}
	err = WriteAll(fd, data)
	if err == nil {
		err = syscall.Fchmod(fd, mode)
	}
	if closeErr := syscall.Close(fd); err == nil {
		err = closeErr
	}
	if err == nil {
		// A rename over a file makes ext4 write the new one to the disk there and
		// then; over nothing it does not.
		_ = syscall.Unlink(path)
		err = syscall.Rename(temp, path)
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: path, Err: errors.Join(err, syscall.Unlink(temp))}
	}
	return nil
}

// WriteAll writes data or fails.
func WriteAll(fd int, data string) error {
	n, err := syscall.Write(fd, []byte(data))
	if err == nil && n < len(data) {
		err = syscall.ENOSPC // the only reason for a file to take less
	}
	return err
}

// Open opens a file; commands do not inherit it.
func Open(path string, flags int, mode uint32) (int, error) {
	for {
		fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC, mode)
		if err == nil {
			return fd, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// Stat returns what is at path, a symbolic link being followed or not.
func Stat(path string, follow bool) (syscall.Stat_t, error) {
	var st syscall.Stat_t
	call := syscall.Lstat
	if follow {
		call = syscall.Stat
	}
	if err := call(path, &st); err != nil {
		return st, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return st, nil
}

// IsDir tells whether path leads to a folder.
func IsDir(path string) bool {
	st, err := Stat(path, true)
	return err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR
}

// IsRegular tells whether path itself is a regular file.
func IsRegular(path string) bool {
	st, err := Stat(path, false)
	return err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG
}

// Same tells whether both paths lead to one file.
func Same(a, b string) bool {
	ai, errA := Stat(a, true)
	bi, errB := Stat(b, true)
	return errA == nil && errB == nil && ai.Dev == bi.Dev && ai.Ino == bi.Ino
}

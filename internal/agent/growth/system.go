package growth

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/sysfile"
)

const (
	cpuFolder    = "/sys/devices/system/cpu"
	memoryFolder = "/sys/devices/system/memory"
	sectorBytes  = 512
)

// cpus brings CPUs online until as many are as wanted.
func (s *Service) cpus(want int64) (bool, error) {
	if want == 0 {
		return true, nil
	}
	online, off, err := s.devices(cpuFolder, "cpu", func(folder string) (string, error) {
		// The first CPU cannot be taken offline, so it has no such file.
		state, err := s.read(folder + "/online")
		if errors.Is(err, os.ErrNotExist) {
			return "1", nil
		}
		return state, err
	})
	if err != nil {
		return true, err
	}
	for _, folder := range off {
		if online >= want {
			break
		}
		if err := s.write(folder+"/online", "1"); err != nil {
			return false, fmt.Errorf("bring a cpu online: %w", err)
		}
		online++
	}
	if online < want {
		return false, fmt.Errorf("%d cpus are online instead of %d", online, want)
	}
	return true, nil
}

// memory brings blocks of memory online until there is as much as wanted. The
// kernel usually did so by itself.
func (s *Service) memory(want int64) (bool, error) {
	if want == 0 {
		return true, nil
	}
	text, err := s.read(memoryFolder + "/block_size_bytes")
	if err != nil {
		return true, err
	}
	block, err := strconv.ParseInt(text, 16, 64)
	if err != nil || block <= 0 {
		return true, fmt.Errorf("the kernel's memory blocks have %q bytes", text)
	}
	online, off, err := s.devices(memoryFolder, "memory", func(folder string) (string, error) {
		state, err := s.read(folder + "/state")
		if state == "online" {
			state = "1"
		}
		return state, err
	})
	if err != nil {
		return true, err
	}
	for _, folder := range off {
		if online*block >= want {
			break
		}
		// Movable memory can be given back some day.
		if err := s.write(folder+"/state", "online_movable"); err != nil {
			return false, fmt.Errorf("bring memory online: %w", err)
		}
		online++
	}
	if online*block < want {
		return false, fmt.Errorf("%d MiB of memory are online instead of %d", online*block>>20, want>>20)
	}
	return true, nil
}

// devices counts the folders below folder that are called name and a number and
// whose state is "1", and lists the others.
func (s *Service) devices(folder, name string, state func(string) (string, error)) (online int64, off []string, err error) {
	entries, err := os.ReadDir(s.Root + folder)
	if err != nil {
		return 0, nil, fmt.Errorf("list devices: %w", err)
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), name)
		if _, err := strconv.ParseUint(number, 10, 31); !ok || err != nil {
			continue
		}
		path := folder + "/" + e.Name()
		switch is, err := state(path); {
		case errors.Is(err, os.ErrNotExist): // it is only just appearing
		case err != nil:
			return 0, nil, err
		case is == "1":
			online++
		default:
			off = append(off, path)
		}
	}
	return online, off, nil
}

// disk grows the root file system over its disk, once the disk has the size.
func (s *Service) disk(want int64) (bool, error) {
	if want == 0 {
		return true, nil
	}
	root := s.Root + "/"
	st, err := sysfile.Stat(root, true)
	if err != nil {
		return true, err
	}
	device := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	text, err := s.read(device + "/size")
	if err != nil {
		return true, fmt.Errorf("find the root disk: %w", err)
	}
	sectors, err := strconv.ParseInt(text, 10, 54)
	if err != nil {
		return true, fmt.Errorf("the root disk has %q sectors", text)
	}
	if have := sectors * sectorBytes; have < want {
		return false, fmt.Errorf("the root disk has %d bytes instead of %d", have, want)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(root, &fs); err != nil {
		return true, fmt.Errorf("look at the root file system: %w", err)
	}
	extend := s.Extend
	if extend == nil {
		extend = extendExt4
	}
	if err := extend(root, uint64(sectors)*sectorBytes/uint64(fs.Bsize)); err != nil {
		return true, fmt.Errorf("grow the root file system: %w", err)
	}
	return true, nil
}

// extendExt4 does what resize2fs does with a mounted file system: all the work is
// the kernel's. A file system that is as large already stays as it is.
func extendExt4(folder string, blocks uint64) error {
	const resizeFS = 0x40086610 // EXT4_IOC_RESIZE_FS
	fd, err := sysfile.Open(folder, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	for {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), resizeFS, uintptr(unsafe.Pointer(&blocks)))
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return errno
		}
	}
}

func (s *Service) read(path string) (string, error) {
	b, err := sysfile.Read(s.Root + path)
	return strings.TrimSpace(string(b)), err
}

func (s *Service) write(path, text string) error {
	fd, err := sysfile.Open(s.Root+path, syscall.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	return sysfile.WriteAll(fd, text)
}

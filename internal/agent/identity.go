package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/link"
)

// hostsAddress is the address under which a machine knows its own name.
const hostsAddress = "127.0.1.1"

func (m *Machine) writeHostname(name string) error {
	hosts, err := os.ReadFile(m.path("etc/hosts"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read hosts: %w", err)
	}
	return errors.Join(
		replaceFile(m.path("etc/hostname"), []byte(name+"\n"), 0o644),
		replaceFile(m.path("etc/hosts"), renameInHosts(hosts, name), 0o644),
	)
}

// renameInHosts makes name the only name of hostsAddress.
func renameInHosts(hosts []byte, name string) []byte {
	var out []byte
	line := []byte(hostsAddress + "\t" + name + "\n")
	for l := range bytes.Lines(hosts) {
		if f := bytes.Fields(l); len(f) > 0 && string(f[0]) == hostsAddress {
			out, line = append(out, line...), nil
			continue
		}
		out = append(out, l...)
	}
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	return append(out, line...)
}

// writeMachineID sets the id in both places that programs read it from.
func (m *Machine) writeMachineID(id string) error {
	text := []byte(id + "\n")
	errs := []error{replaceFile(m.path("etc/machine-id"), text, 0o444)}
	dbus := m.path("var/lib/dbus/machine-id")
	if info, err := os.Lstat(dbus); err == nil && info.Mode().IsRegular() {
		errs = append(errs, replaceFile(dbus, text, 0o644))
	}
	return errors.Join(errs...)
}

// setBootID covers the kernel's boot id, which is made once per boot and so is
// the same in all copies of a running machine, with a file. The mount is of the
// file's inode: later ids are written into it in place.
func (m *Machine) setBootID(id string) error {
	file, target := m.path("run/pando/boot_id"), m.path("proc/sys/kernel/random/boot_id")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("set boot id: %w", err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o444)
	if err != nil {
		return fmt.Errorf("set boot id: %w", err)
	}
	_, err = f.WriteAt([]byte(id+"\n"), 0)
	if err := errors.Join(err, f.Chmod(0o444), f.Close()); err != nil {
		return fmt.Errorf("set boot id: %w", err)
	}
	if sameFile(file, target) {
		return nil
	}
	if err := unix.Mount(file, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("set boot id: %w", err)
	}
	return nil
}

func sameFile(a, b string) bool {
	ai, errA := os.Stat(a)
	bi, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(ai, bi)
}

// writeHostKeys replaces all SSH host keys: a key of a type that is not in keys
// would stay the same in all copies. A machine without SSH gets none.
func (m *Machine) writeHostKeys(keys []link.HostKey) error {
	dir := m.path("etc/ssh")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	old, err := filepath.Glob(filepath.Join(dir, "ssh_host_*_key*"))
	if err != nil {
		return fmt.Errorf("list host keys: %w", err)
	}
	var errs []error
	keep := map[string]bool{}
	for _, k := range keys {
		name := "ssh_host_" + k.Type + "_key"
		if strings.ContainsAny(k.Type, "/\x00") {
			return fmt.Errorf("host key type %q", k.Type)
		}
		keep[name], keep[name+".pub"] = true, true
		errs = append(errs,
			replaceFile(filepath.Join(dir, name), []byte(k.Private), 0o600),
			replaceFile(filepath.Join(dir, name+".pub"), []byte(k.Public), 0o644))
	}
	for _, path := range old {
		if !keep[filepath.Base(path)] {
			errs = append(errs, os.Remove(path))
		}
	}
	m.reloadSSH()
	return errors.Join(errs...)
}

// reloadSSH has a running sshd read its keys again: it holds them in memory.
func (m *Machine) reloadSSH() {
	text, err := os.ReadFile(m.path("run/sshd.pid"))
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return
	}
	comm, err := os.ReadFile(m.path("proc/" + strconv.Itoa(pid) + "/comm"))
	if err == nil && string(comm) == "sshd\n" {
		_ = syscall.Kill(pid, syscall.SIGHUP)
	}
}

// replaceFile writes a file so that readers see the old content or the new,
// and nothing in between.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".pando")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return fmt.Errorf("write file: %w", errors.Join(err, os.Remove(temp)))
	}
	return nil
}

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandovm/pando/internal/agent/sysfile"
	"github.com/pandovm/pando/internal/link"
)

// hostsAddress is the address under which a machine knows its own name.
const hostsAddress = "127.0.1.1"

// SetIdentity sets hostname, machine id, boot id and SSH host keys.
func (m *Machine) SetIdentity(id *link.Identity) error {
	var errs []error
	if id.Hostname != "" {
		errs = append(errs, setHostname(id.Hostname), m.writeHostname(id.Hostname))
	}
	if id.MachineID != "" {
		errs = append(errs, m.writeMachineID(id.MachineID))
	}
	if id.BootID != "" {
		errs = append(errs, m.setBootID(id.BootID))
	}
	if len(id.SSHHostKeys) > 0 {
		errs = append(errs, m.writeHostKeys(id.SSHHostKeys))
	}
	return errors.Join(errs...)
}

func setHostname(name string) error {
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	return nil
}

func (m *Machine) writeHostname(name string) error {
	hosts, err := sysfile.Read(m.path("etc/hosts"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(
		sysfile.Replace(m.path("etc/hostname"), name+"\n", 0o644),
		sysfile.Replace(m.path("etc/hosts"), renameInHosts(hosts, name), 0o644),
	)
}

// renameInHosts makes name the only name of hostsAddress.
func renameInHosts(hosts []byte, name string) string {
	var out []byte
	line := hostsAddress + "\t" + name + "\n"
	for l := range bytes.Lines(hosts) {
		rest, found := bytes.CutPrefix(l, []byte(hostsAddress))
		if found && len(bytes.TrimLeft(rest, " \t\n")) < len(rest) {
			out = append(out, line...)
			line = ""
			continue
		}
		out = append(out, l...)
	}
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	return string(out) + line
}

// writeMachineID sets the id in both places that programs read it from.
func (m *Machine) writeMachineID(id string) error {
	errs := []error{sysfile.Replace(m.path("etc/machine-id"), id+"\n", 0o444)}
	if dbus := m.path("var/lib/dbus/machine-id"); sysfile.IsRegular(dbus) {
		errs = append(errs, sysfile.Replace(dbus, id+"\n", 0o644))
	}
	return errors.Join(errs...)
}

// setBootID covers the kernel's boot id, which is made once per boot and so is
// the same in all copies of a running machine, with a file. The mount is of the
// file's inode: later ids are written into it in place.
func (m *Machine) setBootID(id string) error {
	dir := m.path("run/pando")
	if err := syscall.Mkdir(dir, 0o755); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("set boot id: %w", err)
	}
	file, target := dir+"/boot_id", m.path("proc/sys/kernel/random/boot_id")
	fd, err := sysfile.Open(file, syscall.O_WRONLY|syscall.O_CREAT, 0o444)
	if err != nil {
		return fmt.Errorf("set boot id: %w", err)
	}
	err = errors.Join(sysfile.WriteAll(fd, id+"\n"), syscall.Fchmod(fd, 0o444), syscall.Close(fd))
	if err == nil && !sysfile.Same(file, target) {
		err = unix.Mount(file, target, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("set boot id: %w", err)
	}
	return nil
}

// writeHostKeys replaces all SSH host keys: a key of a type that is not in keys
// would stay the same in all copies. A machine without SSH gets none.
func (m *Machine) writeHostKeys(keys []link.HostKey) error {
	dir := m.path("etc/ssh")
	if !sysfile.IsDir(dir) {
		return nil
	}
	old := []string{"rsa", "dsa", "ecdsa", "ed25519"}
	var errs []error
	for _, k := range keys {
		if strings.ContainsAny(k.Type, "/\x00") {
			return fmt.Errorf("host key type %q", k.Type)
		}
		path := dir + "/ssh_host_" + k.Type + "_key"
		errs = append(errs, sysfile.Replace(path, k.Private, 0o600), sysfile.Replace(path+".pub", k.Public, 0o644))
		old = without(old, k.Type)
	}
	for _, kind := range old {
		path := dir + "/ssh_host_" + kind + "_key"
		errs = append(errs, remove(path), remove(path+".pub"))
	}
	m.reloadSSH()
	return errors.Join(errs...)
}

func without(list []string, s string) []string {
	var out []string
	for _, x := range list {
		if x != s {
			out = append(out, x)
		}
	}
	return out
}

func remove(path string) error {
	if err := syscall.Unlink(path); err != nil && !errors.Is(err, syscall.ENOENT) {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// reloadSSH has a running sshd read its keys again: it holds them in memory.
func (m *Machine) reloadSSH() {
	text, err := sysfile.Read(m.path("run/sshd.pid"))
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return
	}
	comm, err := sysfile.Read(m.path("proc/" + strconv.Itoa(pid) + "/comm"))
	if err == nil && string(comm) == "sshd\n" {
		_ = syscall.Kill(pid, syscall.SIGHUP)
	}
}

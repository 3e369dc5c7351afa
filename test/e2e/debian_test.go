package e2e

import (
	"strings"
	"testing"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/testlab"
)

// The default image is a whole Debian.
func TestDebian(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	v := l.CreateWith(api.CreateVMRequest{})
	if v.Image == nil || *v.Image != testlab.Debian || v.Resources != (api.Resources{CPU: 2, Memory: 2048, Storage: 16384}) {
		t.Errorf("the default vm is %+v", v)
	}
	for _, c := range [][2]string{
		{"cat /proc/1/comm", "systemd"},
		{"systemctl is-system-running", "running"},
		{"id -un 1000", "agent"},
		{"su agent -c 'sudo -n id -u'", "0"},
		{"su agent -c 'echo $HOME'", "/home/agent"},
		{"nproc", "2"},
		{"grep -c bookworm /etc/os-release | sed s/[0-9]*/yes/", "yes"},
		{"node -p 1+1", "2"},
		{"python3 -c 'print(1+1)'", "2"},
		{"git --version | cut -d' ' -f1", "git"},
		{"curl --version | head -n1 | cut -d' ' -f1", "curl"},
		{"test -s /etc/ssl/certs/ca-certificates.crt && echo yes", "yes"},
		{"findmnt -no FSTYPE /", "ext4"},
		{"awk '/MemTotal/ {print ($2 > 1900000 && $2 < 2097153)}' /proc/meminfo", "1"},
		{"df -BM --output=size / | tail -n1 | awk '{print ($1+0 > 15000)}'", "1"},
	} {
		command, want := c[0], c[1]
		if got := strings.TrimSpace(l.Run(v.ID, command)); got != want {
			t.Errorf("%s prints %q, want %q", command, got, want)
		}
	}
}

// Forks of a running Debian differ in everything that must differ.
func TestDebianForks(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	source := l.Create(testlab.Debian)
	l.Run(source.ID, "(i=0; while true; do i=$((i+1)); echo $i > /dev/shm/count; sleep 0.5; done) >/dev/null 2>&1 & echo $! > /dev/shm/counter")
	children := l.Fork(source.ID, 3)
	const random = `
		head -c16 /dev/urandom | od -An -tx1 | tr -d ' \n'; echo
		python3 -c 'import secrets; print(secrets.token_hex(16))'
		node -p 'require("crypto").randomBytes(16).toString("hex")'
		openssl rand -hex 16
		cat /etc/machine-id /proc/sys/kernel/random/boot_id /etc/hostname
		cut -d' ' -f2 /etc/ssh/ssh_host_ed25519_key.pub
		cut -d' ' -f2 /etc/ssh/ssh_host_ecdsa_key.pub`
	seen := map[string]string{}
	for _, v := range append(children, source) {
		lines := strings.Fields(l.Run(v.ID, random))
		if len(lines) != 9 {
			t.Fatalf("%s prints %q", v.ID, lines)
		}
		for _, line := range lines {
			if other := seen[line]; other != "" {
				t.Errorf("%s and %s share %s", v.ID, other, line)
			}
			seen[line] = v.ID
		}
		l.Run(v.ID, "a=$(cat /dev/shm/count); while [ \"$(cat /dev/shm/count)\" = \"$a\" ]; do sleep 0.05; done; kill -0 $(cat /dev/shm/counter)")
		if got := strings.TrimSpace(l.Run(v.ID, "hostname; cat /etc/hostname")); strings.Fields(got)[0] != strings.Fields(got)[1] {
			t.Errorf("%s has hostname %q", v.ID, got)
		}
	}
}

// Names of the reference's images lead to ours.
func TestImageAliases(t *testing.T) {
	t.Parallel()
	l := testlab.New(t)
	for alias, image := range map[string]string{"freestyle/ubuntu": testlab.Debian, "freestyle/busybox": testlab.Busybox} {
		v := l.Create(alias)
		if v.Image == nil || *v.Image != image {
			t.Errorf("%s leads to %v, want %s", alias, v.Image, image)
		}
		s, err := l.Client.Snapshots.Get(t.Context(), alias)
		if err != nil || !s.Public {
			t.Errorf("snapshot %s: %+v, %v", alias, s, err)
		}
	}
}

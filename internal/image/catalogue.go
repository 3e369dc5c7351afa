package image

import (
	"slices"

	"github.com/pandovm/pando/api"
)

// Entry is one image of the catalogue.
type Entry struct {
	Name string
	// Aliases are other names for the same image: the ones that clients of the
	// reference service use.
	Aliases   []string
	Default   bool
	Recipe    string
	Resources api.Resources
	// Warm are the commands that are run before the capture.
	Warm []string
}

// Catalogue lists every image that can be built.
func Catalogue() []Entry {
	debian := func(name, alias string, cpus, memory, storage int) Entry {
		return Entry{
			Name: name, Aliases: []string{alias}, Recipe: "debian", Warm: debianWarm(),
			Resources: api.Resources{CPU: cpus, Memory: memory, Storage: storage},
		}
	}
	all := []Entry{
		debian("pando/debian", "freestyle/ubuntu", 2, 2048, 16384),
		debian("pando/debian-sm", "freestyle/ubuntu-sm", 1, 1024, 8192),
		debian("pando/debian-lg", "freestyle/ubuntu-lg", 4, 8192, 32768),
		debian("pando/debian-xl", "freestyle/ubuntu-xl", 8, 16384, 65536),
		{
			Name: "pando/busybox", Aliases: []string{"freestyle/busybox"}, Recipe: "busybox",
			Resources: api.Resources{CPU: 1, Memory: 128, Storage: 1024}, Warm: []string{"true"},
		},
	}
	all[0].Default = true
	return all
}

// debianWarm touches what people's first commands need, so that it is in
// memory in every VM instead of being read from its disk. loginctl brings up the
// bus and logind, which the boot leaves for later.
//
// At the end the journal is stopped and emptied: its service keeps the machine
// id and boot id that it was started with, and so must start, as it does with
// the first message, in the VM that has them.
func debianWarm() []string {
	return []string{
		"true", "bash -lc true", "node -v", "python3 -c 'import json, os, subprocess'", "git --version",
		"curl --version", "sudo -n true", "loginctl --no-pager", "ls -la / >/dev/null; cat /etc/os-release; ps aux | head -n 3",
		// By a timer, because the end of sudo's session is a message too.
		"sudo -n systemd-run --quiet --on-active=1s -p StandardOutput=null -p StandardError=null " +
			"sh -c 'systemctl stop systemd-journald.service; rm -rf /var/log/journal/*'",
		"while systemctl --quiet is-active systemd-journald.service; do sleep 0.5; done",
	}
}

// Find looks an image up by name or alias; the empty name is the default image.
func Find(ref string) (Entry, bool) {
	all := Catalogue()
	i := slices.IndexFunc(all, func(e Entry) bool {
		return e.Name == ref || slices.Contains(e.Aliases, ref) || ref == "" && e.Default
	})
	if i < 0 {
		return Entry{}, false
	}
	return all[i], true
}

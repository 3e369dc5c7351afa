package rootfs_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/internal/rootfs"
)

func TestParseMirrors(t *testing.T) {
	t.Parallel()
	const public, security = "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"
	tests := map[string]struct{ targets, main, security string }{
		"nothing":      {"", public, security},
		"ubuntu":       {"Ubuntu|Ubuntu|http://archive.example/ubuntu/\n", public, security},
		"debian":       {"Debian|Debian|http://near.example/debian/\nDebian|Debian-Security|http://near.example/sec/\n", "http://near.example/debian", "http://near.example/sec"},
		"others too":   {"X|X|http://x.example/\nDebian|Debian|https://m.example/d\n", "https://m.example/d", security},
		"backports":    {"Debian|Debian Backports|http://b.example/\n", public, security},
		"not fetched":  {"$(ORIGIN)|$(LABEL)|http://m.example/d/\n", public, security},
		"local folder": {"Debian|Debian|/srv/mirror/\n", public, security},
		"broken":       {"Debian|Debian\nDebian|Debian|a|b\n|||\n", public, security},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			main, sec := rootfs.ParseMirrors(test.targets)
			if main != test.main || sec != test.security {
				t.Errorf("mirrors are %s and %s, want %s and %s", main, sec, test.main, test.security)
			}
		})
	}
}

func TestFilterAptOptions(t *testing.T) {
	t.Parallel()
	const dump = `APT "";
Acquire::Check-Valid-Until "false";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3142/";
Acquire::https::Verify-Peer "true";
Acquire::Languages:: "none";
Acquire::GzipIndexes "true";
DPkg::Post-Invoke:: "rm -f something";
Dir::State "var/lib/apt";
`
	const want = `Acquire::Check-Valid-Until "false";
Acquire::http::Proxy "http://proxy.example:3142/";
Acquire::https::Verify-Peer "true";
`
	if diff := cmp.Diff(want, rootfs.FilterAptOptions(dump)); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

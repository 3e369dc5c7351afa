package rootfs

import (
	"context"
	"fmt"
	"os"
	"strings"
)

const (
	suite   = "bookworm"
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

	// Where Debian is served to everyone; used on hosts whose own apt is not Debian's.
	publicMirror   = "http://deb.debian.org/debian"
	publicSecurity = "http://deb.debian.org/debian-security"
)

// mirrors are the archives that packages come from.
type mirrors struct{ main, security string }

// hostMirrors are the Debian archives that the host's own apt uses, because
// those are reachable from here and near.
func (t tools) hostMirrors(ctx context.Context) mirrors {
	targets := t.ask(ctx, "apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages")
	return parseMirrors(mirrors{main: publicMirror, security: publicSecurity}, targets)
}

func parseMirrors(m mirrors, targets string) mirrors {
	for line := range strings.Lines(targets) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) != 3 || fields[0] != "Debian" || !strings.Contains(fields[2], "://") {
			continue
		}
		uri := strings.TrimSuffix(fields[2], "/")
		switch fields[1] {
		case "Debian":
			m.main = uri
		case "Debian-Security":
			m.security = uri
		}
	}
	return m
}

// sources is the one-line-style sources list for the bootstrap.
func (m mirrors) sources() string {
	const line = "deb [signed-by=%s] %s %s main\n"
	return fmt.Sprintf(line, keyring, m.main, suite) +
		fmt.Sprintf(line, keyring, m.main, suite+"-updates") +
		fmt.Sprintf(line, keyring, m.security, suite+"-security")
}

// hostAptOptions are the host's settings for reaching its archives (proxies,
// checks of dates), in apt's configuration syntax. mmdebstrap reads none of the
// host's configuration by itself.
func (t tools) hostAptOptions(ctx context.Context) string {
	return filterAptOptions(t.ask(ctx, "apt-config", "dump"))
}

func filterAptOptions(dump string) string {
	var kept strings.Builder
	for line := range strings.Lines(dump) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || value == `"";` {
			continue
		}
		for _, prefix := range []string{
			"Acquire::http::", "Acquire::https::", "Acquire::Check-", "Acquire::Retries", "Acquire::ForceIPv",
		} {
			if strings.HasPrefix(key, prefix) {
				kept.WriteString(strings.TrimSpace(line) + "\n")
				break
			}
		}
	}
	return kept.String()
}

// writeAptFiles puts sources and options where mmdebstrap reads them.
func (t tools) writeAptFiles(ctx context.Context, sourcesPath, optionsPath string) error {
	if err := os.WriteFile(sourcesPath, []byte(t.hostMirrors(ctx).sources()), 0o644); err != nil {
		return fmt.Errorf("write sources list: %w", err)
	}
	options := "APT::Install-Recommends \"false\";\nAcquire::Languages \"none\";\n" + t.hostAptOptions(ctx)
	if err := os.WriteFile(optionsPath, []byte(options), 0o644); err != nil {
		return fmt.Errorf("write apt options: %w", err)
	}
	return nil
}

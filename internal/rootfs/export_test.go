package rootfs

// ParseMirrors returns the archives that the output of apt-get indextargets
// names, main and security.
func ParseMirrors(targets string) (main, security string) {
	m := parseMirrors(mirrors{main: publicMirror, security: publicSecurity}, targets)
	return m.main, m.security
}

// FilterAptOptions is what is kept of the output of apt-config dump.
func FilterAptOptions(dump string) string { return filterAptOptions(dump) }

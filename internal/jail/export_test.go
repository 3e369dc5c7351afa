package jail

// DetectIn is DetectCgroups on the given mountinfo.
func DetectIn(mountinfo string) Cgroups { return detectCgroups(mountinfo) }

// CreateGroup returns the version 2 folder and the version 1 task files.
func CreateGroup(c Cgroups, name string, l Limits) (folder string, tasks []string, err error) {
	g, err := c.create(name, l)
	return g.unified, g.tasks, err
}

// ParseStat is what Process reads its identity with.
func ParseStat(line []byte) (start uint64, state byte, err error) { return parseStat(line) }

// ChildInfo makes the kernel's record of an ended child.
func ChildInfo(code, pid, status int32) Exit {
	return (&childInfo{code: code, pid: pid, status: status}).exit()
}

// RefuseNamespaces makes j behave as on a host that forbids them.
func RefuseNamespaces(j *Jail) { j.bare.Store(true) }

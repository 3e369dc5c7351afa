package process

import (
	"strings"
	"syscall"

	"github.com/pandovm/pando/internal/agent/sysfile"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Run returns the command by which a's login shell runs text, in a's home. The
// NAME=value entries of extra override and add to the account's environment. The
// caller sets the descriptors.
func (a Account) Run(text string, extra []string) *Command {
	return a.command([]string{a.shellName(), "-c", text}, extra)
}

// Login returns the command of a's login shell itself.
func (a Account) Login(extra []string) *Command {
	return a.command([]string{"-" + a.shellName()}, extra)
}

func (a Account) shellName() string { return a.Shell[strings.LastIndexByte(a.Shell, '/')+1:] }

func (a Account) command(argv, extra []string) *Command {
	c := &Command{
		Path: a.Shell, Argv: argv, Env: environment(a, extra), Dir: a.Home,
		Credential: &syscall.Credential{Uid: a.UID, Gid: a.GID, Groups: a.Groups},
	}
	if !sysfile.IsDir(c.Dir) {
		c.Dir = "/"
	}
	return c
}

// environment returns the defaults for a, overridden by extra.
func environment(a Account, extra []string) []string {
	env := []string{
		"HOME=" + a.Home, "USER=" + a.Name, "LOGNAME=" + a.Name, "SHELL=" + a.Shell,
		"PATH=" + defaultPath, "LANG=C.UTF-8",
	}
	for _, e := range extra {
		name := e[:strings.IndexByte(e, '=')+1]
		replaced := false
		for i := range env {
			if strings.HasPrefix(env[i], name) {
				env[i], replaced = e, true
			}
		}
		if !replaced {
			env = append(env, e)
		}
	}
	return env
}

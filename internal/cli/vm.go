package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

func (a *app) vm() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "vm",
		Aliases: []string{"vms"},
		Short:   "Create, fork and use VMs",
		Long: `Create, fork and use VMs.

A VM is named by its id or its slug.`,
	}
	return group(
		cmd, a.vmCreate(), a.vmLs(), a.vmGet(), a.vmUpdate(), a.vmStart(), a.vmStop(), a.vmPause(),
		a.vmFork(), a.vmResize(), a.vmSnapshot(), a.vmExec(), a.vmPs(), a.vmLogs(), a.vmAttach(), a.vmAgent(), a.vmRm(),
		a.vmShell(), a.vmSessions(),
		a.vmCp(), a.vmFs(),
	)
}

// naming holds the flags that say how a new VM is to be called.
type naming struct {
	slug, name, identity string
	metadata             []string
}

func (n *naming) register(cmd *cobra.Command, slugHelp string) {
	f := cmd.Flags()
	f.StringVar(&n.slug, "slug", "", slugHelp)
	f.StringVar(&n.name, "name", "", "a name for people to read")
	f.StringArrayVar(&n.metadata, "metadata", nil, "a `key=value` to keep with it; may be repeated")
	f.StringVar(&n.identity, "identity", string(api.IdentityNew),
		`"new" gives it a hostname, machine id and SSH host keys of its own, "keep" leaves its source's`)
}

// pairs parses repeated key=value flags.
func pairs(flag string, values []string) (map[string]string, error) {
	if len(values) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(values))
	for _, v := range values {
		key, value, ok := strings.Cut(v, "=")
		if !ok || key == "" {
			return nil, &usageError{message: "--" + flag + " " + v + ": want key=value"}
		}
		m[key] = value
	}
	return m, nil
}

// identityOf checks the flag here, because a mistyped word must not cost a
// round trip.
func identityOf(s string) (api.Identity, error) {
	switch id := api.Identity(s); id {
	case api.IdentityNew, api.IdentityKeep:
		return id, nil
	default:
		return "", &usageError{message: "--identity " + s + `: want "new" or "keep"`}
	}
}

// label is how people call a VM: its slug if it has one.
func label(vm api.VM) string {
	if slug := text(vm.Slug); slug != "" {
		return slug
	}
	return vm.ID
}

// state is the state with the reason that nobody asked for, if there is one.
func state(vm api.VM) string {
	if vm.StateReason != "" {
		return string(vm.State) + " (" + vm.StateReason + ")"
	}
	return string(vm.State)
}

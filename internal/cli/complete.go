package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

// completionPatience is how long a person who pressed Tab waits for names.
const completionPatience = 2 * time.Second

// candidates finds names to complete, each with a word on it. It is silent: a
// daemon that is not there has no names.
type candidates func(ctx context.Context, c *pando.Client, prefix string) []cobra.Completion

// argumentNames are what the words in capitals in a command's usage line stand
// for, in any command or in one.
func argumentNames() map[string]candidates {
	return map[string]candidates{
		"VM": vmNames, "SNAPSHOT": snapshotNames, "IMAGE": imageNames, "pando vm create SNAPSHOT": sourceNames,
		"SOURCE": pathNames, "DESTINATION": pathNames, "SRC": pathNames, "DST": pathNames,
	}
}

// flagValues are flags that take one of few words, whichever command has them.
func flagValues() map[string][]string {
	return map[string][]string{
		"state":    stateNames(),
		"identity": {string(api.IdentityNew), string(api.IdentityKeep)},
		"sort":     topOrders(),
	}
}

// addCompletion makes the shells complete the arguments of every command in the
// tree, by the words in its usage line.
func (a *app) addCompletion(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.addCompletion(sub)
	}
	for flag, values := range flagValues() {
		if cmd.Flags().Lookup(flag) != nil {
			// It fails only if it was registered before, and then that is as good.
			_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = a.argumentCompletion(placeholders(cmd.Use))
	}
}

// placeholders are the arguments in a usage line, without brackets:
// "exec VM [--] COMMAND..." has VM and COMMAND....
func placeholders(use string) []string {
	var found []string
	for i, word := range strings.Fields(use) {
		word = strings.Trim(word, "[]")
		if i > 0 && word != "--" && word != "" {
			found = append(found, word)
		}
	}
	return found
}

// placeholder is the one that stands for the argument after args; the last one
// stands for all that follow if it has dots.
func placeholder(all []string, args int) (name string, repeated bool) {
	if len(all) == 0 {
		return "", false
	}
	last := all[len(all)-1]
	switch {
	case args < len(all):
		name = all[args]
	case strings.HasSuffix(last, "..."):
		name = last
	}
	return strings.TrimSuffix(name, "..."), strings.HasSuffix(name, "...")
}

func (a *app) argumentCompletion(all []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		name, repeated := placeholder(all, len(args))
		find, ok := argumentNames()[cmd.CommandPath()+" "+name]
		if !ok {
			find = argumentNames()[name]
		}
		if find == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := a.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		found := find(ctx, c, prefix)
		if repeated {
			found = slices.DeleteFunc(found, func(f string) bool { return slices.Contains(args, word(f)) })
		}
		return found, directive(name)
	}
}

// directive says what else may stand there: paths may also be files of this host.
func directive(name string) cobra.ShellCompDirective {
	switch name {
	case "SOURCE", "DESTINATION", "SRC", "DST":
		return cobra.ShellCompDirectiveDefault | cobra.ShellCompDirectiveNoSpace
	default:
		return cobra.ShellCompDirectiveNoFileComp
	}
}

// word is a completion without its description.
func word(c cobra.Completion) string {
	w, _, _ := strings.Cut(c, "\t")
	return w
}

// described is a completion with a description that the shells can show.
func described(name string, words ...string) cobra.Completion {
	return cobra.CompletionWithDesc(name, printable(strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ", ")))
}

// vmNames are slugs, and ids where there is no slug or an id was begun.
func vmNames(ctx context.Context, c *pando.Client, prefix string) []cobra.Completion {
	list, err := c.VMs.List(ctx, pando.VMFilter{})
	if err != nil {
		return nil
	}
	var found []cobra.Completion
	for _, v := range list.VMs {
		found = append(found, named(v.ID, text(v.Slug), prefix, string(v.State), text(v.Image), text(v.DisplayName))...)
	}
	return found
}

// named completes an object by its slug or its id.
func named(id, slug, prefix string, words ...string) []cobra.Completion {
	var found []cobra.Completion
	if slug != "" && strings.HasPrefix(slug, prefix) {
		found = append(found, described(slug, words...))
	}
	if strings.HasPrefix(id, prefix) && (slug == "" || prefix != "") {
		found = append(found, described(id, append([]string{slug}, words...)...))
	}
	return found
}

func snapshotNames(ctx context.Context, c *pando.Client, prefix string) []cobra.Completion {
	list, err := c.Snapshots.List(ctx, pando.SnapshotFilter{})
	if err != nil {
		return nil
	}
	var found []cobra.Completion
	for _, s := range list.Snapshots {
		found = append(found, named(s.ID, text(s.Slug), prefix, "snapshot", text(s.DisplayName))...)
	}
	return found
}

// sourceNames are what a VM can be made from.
func sourceNames(ctx context.Context, c *pando.Client, prefix string) []cobra.Completion {
	return append(snapshotNames(ctx, c, prefix), imageNames(ctx, c, prefix)...)
}

func imageNames(ctx context.Context, c *pando.Client, prefix string) []cobra.Completion {
	list, err := c.Images.List(ctx)
	if err != nil {
		return nil
	}
	var found []cobra.Completion
	for _, i := range list.Images {
		if strings.HasPrefix(i.Name, prefix) {
			found = append(found, described(i.Name, "image"))
		}
	}
	return found
}

// pathNames are VMs with a colon, for commands that copy between hosts.
func pathNames(ctx context.Context, c *pando.Client, prefix string) []cobra.Completion {
	if strings.ContainsAny(prefix, ":/.") {
		return nil
	}
	found := vmNames(ctx, c, prefix)
	for i, f := range found {
		name, about, _ := strings.Cut(f, "\t")
		found[i] = described(name+":", about)
	}
	return found
}

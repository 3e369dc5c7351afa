package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
)

func (a *app) doctor() *cobra.Command {
	var o DoctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this host can run VMs",
		Long: `Check whether this host can run VMs, prove it by booting one, and say how to
fix what is missing. The exit code is 1 if VMs cannot run.`,
		Args: wantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.runDoctor(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "do not boot a VM")
	return cmd
}

func (a *app) runDoctor(ctx context.Context, o DoctorOptions) error {
	checks := []Check{}
	var failed error
	t := a.begin("examining this host")
	err := a.Doctor.Examine(ctx, o, func(c Check) {
		checks = append(checks, c)
	})
	t.end()
	if !a.json {
		failed = a.printChecks(checks)
	} else if err == nil {
		failed = a.printJSON(map[string]any{"ok": !cannotRun(checks), "checks": checks})
	}
	switch {
	case err != nil:
		return err
	case failed != nil:
		return failed
	case cannotRun(checks):
		return exitError(exitFailure)
	default:
		return nil
	}
}

func cannotRun(checks []Check) bool {
	return slices.ContainsFunc(checks, func(c Check) bool { return c.Status == CheckFail })
}

func (a *app) printChecks(checks []Check) error {
	widest := 0
	for _, c := range checks {
		widest = max(widest, len(c.Name))
	}
	for _, c := range checks {
		if err := a.print("%-4s  %-*s  %s", c.Status, widest, c.Name, printable(c.Detail)); err != nil {
			return err
		}
		if c.Fix == "" {
			continue
		}
		if err := a.print("      %-*s  fix: %s", widest, "", printable(c.Fix)); err != nil {
			return err
		}
	}
	verdict := "this host can run VMs"
	if cannotRun(checks) {
		verdict = "this host cannot run VMs"
	}
	return a.print("\n%s", verdict)
}

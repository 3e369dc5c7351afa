package cli

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

func (a *app) vmResize() *cobra.Command {
	var cpu int
	var memory, storage string
	cmd := &cobra.Command{
		Use:   "resize VM",
		Short: "Give a VM more CPUs, memory or disk",
		Long: `Give a VM more CPUs, memory or disk. Nothing can become smaller.

A running VM has all of it at once: the CPUs and the memory are online and the
file system has grown. CPUs and memory of a paused VM grow when it resumes, those
of a stopped one when it boots. The disk grows only while the VM runs.

The size is kept in snapshots and forks.`,
		Example: `  pando vm resize web --cpu 4 --memory 8GiB
  pando vm resize web --storage 40GB`,
		Args: wantArgs(1, 1, "VM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r api.ResizeVMRequest
			var err error
			if cmd.Flags().Changed("cpu") {
				r.CPU = &cpu
			}
			if r.Memory, err = sizeOf("memory", memory, memoryStep); err != nil {
				return err
			}
			if r.Storage, err = sizeOf("storage", storage, 1); err != nil {
				return err
			}
			if r == (api.ResizeVMRequest{}) {
				return &usageError{message: "give at least one of --cpu, --memory and --storage"}
			}
			return a.runResize(cmd.Context(), args[0], r)
		},
	}
	cmd.Flags().IntVar(&cpu, "cpu", 0, "how many virtual CPUs it shall have")
	cmd.Flags().StringVar(&memory, "memory", "", "how much memory it shall have, as in 4GiB or 4096MiB; a plain number is MiB")
	cmd.Flags().StringVar(&storage, "storage", "", "how large its root disk shall be, as in 40GB or 40960MiB; a plain number is MiB")
	return cmd
}

// memoryStep is what memory grows by, in MiB.
const memoryStep = 4

// sizeOf reads a size. One in a decimal unit is rounded up to a multiple of step
// MiB; empty is nil.
func sizeOf(flag, text string, step float64) (*int, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // not given
	}
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit, known := map[string]float64{
		"": 1 << 20, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30, "t": 1 << 40, "tib": 1 << 40,
		"mb": 1e6, "gb": 1e9, "tb": 1e12,
	}[strings.ToLower(strings.TrimSpace(text[len(number):]))]
	value, err := strconv.ParseFloat(number, 64)
	mib := value * unit / (1 << 20)
	if strings.HasSuffix(strings.ToLower(text), "b") && !strings.HasSuffix(strings.ToLower(text), "ib") {
		mib = math.Ceil(mib/step) * step
	}
	mib = math.Ceil(mib)
	if err != nil || !known || !(mib >= 1 && mib < 1<<31) {
		return nil, &usageError{message: "--" + flag + " " + text + `: want a size such as "4GiB", "512MiB" or "40GB"`}
	}
	return new(int(mib)), nil
}

func (a *app) runResize(ctx context.Context, ref string, r api.ResizeVMRequest) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	start := a.Now()
	t := a.begin("resizing " + printable(ref))
	vm, err := c.VMs.Resize(ctx, ref, r)
	t.end()
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(vm)
	}
	if vm.State != api.StateRunning {
		return a.print("%s will have %s when it starts", printable(label(vm)), resources(vm.Resources))
	}
	return a.print("%s has %s (%s)", printable(label(vm)), resources(vm.Resources), a.took(start))
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

type topOptions struct {
	interval time.Duration
	once     bool
	sort     string
}

// leastInterval bounds how often the daemon measures for one viewer.
const leastInterval = 200 * time.Millisecond

func (a *app) top() *cobra.Command {
	o := topOptions{}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch what VMs use",
		Long: `Watch what VMs use on their host, until q or Ctrl-C.

CPU is the load of the VM's process since the last look: 100 % is one processor
of the host. MEMORY is what the process has in memory, UNIQUE the part of it
that no other VM shares. DISK is what deleting the VM would free.

Without a terminal, with --once and with --json it looks once and ends.`,
		Args: wantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.runTop(cmd.Context(), o)
		},
	}
	cmd.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "time between two looks")
	cmd.Flags().BoolVar(&o.once, "once", false, "look once and end")
	cmd.Flags().StringVar(&o.sort, "sort", topOrders()[0], "what to sort by: "+strings.Join(topOrders(), ", "))
	return cmd
}

func topOrders() []string { return []string{"cpu", "memory", "disk", "name"} }

func (o topOptions) check() error {
	if !slices.Contains(topOrders(), o.sort) {
		return &usageError{message: "--sort " + o.sort + ": want one of " + strings.Join(topOrders(), ", ")}
	}
	if o.interval < leastInterval {
		return &usageError{message: fmt.Sprintf("--interval %v: want at least %v", o.interval, leastInterval)}
	}
	return nil
}

func (a *app) runTop(ctx context.Context, o topOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	first, err := c.VMs.AllStats(ctx)
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(first)
	case o.once || !a.IO.OutTerminal:
		return a.topOnce(ctx, c, o, first)
	default:
		return a.watchTop(ctx, c, o, first)
	}
}

// topOnce looks twice, since a load is the difference of two looks.
func (a *app) topOnce(ctx context.Context, c *pando.Client, o topOptions, first api.VMStatsList) error {
	if err := pause(ctx, leastInterval); err != nil {
		return err
	}
	second, err := c.VMs.AllStats(ctx)
	if err != nil {
		return err
	}
	return a.printTable(topTable(topRows(first, second, o.sort)))
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// topRow is one VM between two looks.
type topRow struct {
	api.VMStats

	// load is in processors: 1 keeps one of the host's busy.
	load float64
}

func (r topRow) name() string { return cmp.Or(text(r.Slug), r.ID) }

func (r topRow) memory() int64 { return r.MemorySharedBytes + r.MemoryUniqueBytes }

// topRows compares two looks and sorts the VMs of the later one.
func topRows(before, after api.VMStatsList, order string) []topRow {
	earlier := map[string]api.VMStats{}
	for _, s := range before.VMs {
		earlier[s.ID] = s
	}
	rows := make([]topRow, 0, len(after.VMs))
	for _, s := range after.VMs {
		rows = append(rows, topRow{s, load(earlier[s.ID], s)})
	}
	slices.SortStableFunc(rows, func(x, y topRow) int { return cmp.Or(compareRows(x, y, order), cmp.Compare(x.name(), y.name())) })
	return rows
}

// load is the share of a processor between two looks. A process that was
// started in between has used less than the one before it.
func load(before, after api.VMStats) float64 {
	passed := after.At.Sub(before.At).Seconds()
	used := after.CPUTimeSeconds - before.CPUTimeSeconds
	if before.At.IsZero() || passed <= 0 || used < 0 {
		return 0
	}
	return used / passed
}

func compareRows(x, y topRow, order string) int {
	switch order {
	case "cpu":
		return cmp.Compare(y.load, x.load)
	case "memory":
		return cmp.Compare(y.MemoryUniqueBytes, x.MemoryUniqueBytes)
	case "disk":
		return cmp.Compare(y.DiskBytes, x.DiskBytes)
	default:
		return 0
	}
}

func topTable(rows []topRow) *table {
	t := newTable(0, "VM", "STATE", "CPU", "MEMORY", "UNIQUE", "DISK", "UPTIME")
	for _, r := range rows {
		cpu, memory, unique, uptime := "", "", "", ""
		if r.memory() > 0 {
			cpu = fmt.Sprintf("%.0f %%", 100*r.load)
			memory, unique = bytesText(r.memory()), bytesText(r.MemoryUniqueBytes)
			uptime = ageText(time.Duration(r.UptimeSeconds * float64(time.Second)))
		}
		t.add(r.name(), string(r.State), cpu, memory, unique, bytesText(r.DiskBytes), uptime)
	}
	return t
}

// topSummary is the line above the table.
func topSummary(rows []topRow) string {
	running, load, unique, disk := 0, 0.0, int64(0), int64(0)
	for _, r := range rows {
		if r.State == api.StateRunning {
			running++
		}
		load, unique, disk = load+r.load, unique+r.MemoryUniqueBytes, disk+r.DiskBytes
	}
	return fmt.Sprintf("%s, %d running · cpu %.0f %% · unique memory %s · disk %s",
		count(len(rows), "VM"), running, 100*load, bytesText(unique), bytesText(disk))
}

package cli

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"
)

// One spare makes a create that comes alone quick; each costs the memory of an
// idle VM.
const (
	defaultSpares = 1
	maxSpares     = 32
)

// defaultListen is loopback: a daemon that others can reach is a decision.
const defaultListen = "127.0.0.1:7878"

func (a *app) serve() *cobra.Command {
	var o ServeOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon",
		Long: `Run the daemon in the foreground.

The API key is PANDO_API_KEY; without it one is made at the first start and
kept in the file api-key of the data folder. SIGTERM and SIGINT end the daemon
and leave the VMs running, unless --stop-vms is given; the next start finds
them again. With --json the log is lines of JSON.`,
		Args: wantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkServe(o); err != nil {
				return err
			}
			o.JSONLog = a.json
			return a.Serve(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Listen, "listen", defaultListen, "the `address` of the API: host:port")
	cmd.Flags().StringVar(&o.Data, "data", a.DataDir, "the `folder` for VMs, snapshots and the store")
	cmd.Flags().BoolVar(&o.StopVMs, "stop-vms", false, "stop the VMs when the daemon ends")
	cmd.Flags().IntVar(&o.Spares, "spares", defaultSpares, "how `many` VMs of each base image in use are kept ready for the next create")
	return cmd
}

func checkServe(o ServeOptions) error {
	if o.Spares < 0 || o.Spares > maxSpares {
		return &usageError{message: fmt.Sprintf("--spares %d: want 0 to %d", o.Spares, maxSpares)}
	}
	if o.Data == "" {
		return &usageError{message: "there is no data folder", fix: "name one: pando serve --data DIR"}
	}
	if _, _, err := net.SplitHostPort(o.Listen); err != nil {
		return &usageError{message: "--listen " + o.Listen + ": want host:port, such as " + defaultListen}
	}
	return nil
}

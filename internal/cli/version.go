package cli

import (
	"runtime"

	"github.com/spf13/cobra"
)

// versionInfo is what the version command prints with --json.
type versionInfo struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  wantArgs(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			v := versionInfo{Version: a.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if a.json {
				return a.printJSON(v)
			}
			return a.print("pando %s (%s, %s)", v.Version, v.Go, v.Platform)
		},
	}
}

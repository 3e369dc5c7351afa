package cli

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
)

func (a *app) limits() *cobra.Command {
	return &cobra.Command{
		Use:   "limits",
		Short: "List every limit and default of the API",
		Args:  wantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.Limits(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			return a.printLimits(list.Limits)
		},
	}
}

func (a *app) printLimits(limits []api.Limit) error {
	t := newTable(3, "LIMIT", "VALUE", "ERROR", "MEANING")
	for _, l := range limits {
		t.add(l.Name, limitText(l), string(l.Code), l.Description)
	}
	return a.printTable(t)
}

// limitText is a limit's value with its unit, as people write it.
func limitText(l api.Limit) string {
	switch l.Unit {
	case api.UnitBytes:
		return bytesText(l.Value)
	case api.UnitMebibytes:
		return bytesText(l.Value << 20)
	case api.UnitSeconds:
		return (time.Duration(l.Value) * time.Second).String()
	case api.UnitMilliseconds:
		return (time.Duration(l.Value) * time.Millisecond).String()
	case api.UnitCharacters:
		return count(int(l.Value), "character")
	default:
		return strconv.FormatInt(l.Value, 10)
	}
}

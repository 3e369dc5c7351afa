package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

func (a *app) firewall() *cobra.Command {
	return group(&cobra.Command{
		Use:   "firewall",
		Short: "Say which traffic VMs may have",
		Long: `Say which traffic VMs may have. What no rule allows is closed, in both directions.

VMs have no network yet: rules are checked and kept, and take effect once VMs
have one. A rule is deleted with any VM that it names, and a fork has copies of
the rules of its source.`,
	}, a.firewallCreate(), a.firewallLs(), a.firewallGet(), a.firewallRm())
}

func (a *app) firewallCreate() *cobra.Command {
	var from, to, description string
	cmd := &cobra.Command{
		Use:   "create --from END --to END",
		Short: "Allow traffic from one end to another",
		Long: `Allow traffic from one end to another.

An END is what the traffic is, in words joined by commas: public (the Internet),
vm=VM, cidr=NETWORK; and what narrows it: proto=tcp|udp|icmp, port=N.`,
		Example: `  pando firewall create --from vm=web --to public
  pando firewall create --from public --to vm=web,proto=tcp,port=443
  pando firewall create --from vm=web --to vm=db,proto=tcp,port=5432 --description "the shop's database"`,
		Args: wantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ruleRequest(from, to, description)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			rule, err := c.Firewall.Create(cmd.Context(), r)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(rule)
			}
			return a.print("%s allows %s to %s", rule.ID, printable(endText(rule.Source)), printable(endText(rule.Destination)))
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "the `END` that the traffic comes from")
	f.StringVar(&to, "to", "", "the `END` that the traffic goes to")
	f.StringVar(&description, "description", "", "a note for people to read")
	return cmd
}

func ruleRequest(from, to, description string) (api.FirewallRuleRequest, error) {
	source, err := parseEnd("from", from)
	if err != nil {
		return api.FirewallRuleRequest{}, err
	}
	destination, err := parseEnd("to", to)
	if err != nil {
		return api.FirewallRuleRequest{}, err
	}
	return api.FirewallRuleRequest{
		Action: api.ActionAllow, Source: source, Destination: destination, Description: optional(description),
	}, nil
}

// parseEnd reads what a flag says about one end of a rule.
func parseEnd(flag, text string) (*api.FirewallEndpoint, error) {
	e := &api.FirewallEndpoint{}
	if text == "" {
		return nil, &usageError{message: "missing flag: --" + flag, command: "pando firewall create"}
	}
	for word := range strings.SplitSeq(text, ",") {
		if err := endWord(e, word); err != "" {
			return nil, &usageError{message: "--" + flag + " " + text + ": " + err, command: "pando firewall create"}
		}
	}
	return e, nil
}

// endWord adds one word to an end and says what is wrong with it.
func endWord(e *api.FirewallEndpoint, word string) string {
	key, value, given := strings.Cut(word, "=")
	if given == (key == "public") || given && value == "" {
		return "want public, vm=VM, cidr=NETWORK, proto=PROTOCOL or port=N"
	}
	switch key {
	case "public":
		e.Public = new(true)
	case "vm":
		e.VMID = &value
	case "vpc":
		e.VPCID = &value
	case "tunnel":
		e.TunnelID = &value
	case "cidr":
		e.CIDR = &value
	case "proto":
		e.Protocol = new(api.Protocol(value))
	case "port":
		n, err := strconv.Atoi(value)
		if err != nil {
			return "the port is no number"
		}
		e.Port = &n
	default:
		return "want public, vm=VM, cidr=NETWORK, proto=PROTOCOL or port=N"
	}
	return ""
}

// endText is the words of an end, as parseEnd reads them.
func endText(e api.FirewallEndpoint) string {
	var words []string
	if e.Public != nil {
		words = append(words, "public")
	}
	for _, w := range []struct {
		key   string
		value *string
	}{{"vm", e.VMID}, {"vpc", e.VPCID}, {"tunnel", e.TunnelID}, {"cidr", e.CIDR}} {
		if w.value != nil {
			words = append(words, w.key+"="+*w.value)
		}
	}
	if e.Protocol != nil {
		words = append(words, "proto="+string(*e.Protocol))
	}
	if e.Port != nil {
		words = append(words, "port="+strconv.Itoa(*e.Port))
	}
	return strings.Join(words, ",")
}

func (a *app) firewallLs() *cobra.Command {
	var vm string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List firewall rules, newest first",
		Args:    wantArgs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.Firewall.List(cmd.Context(), pando.RuleFilter{VM: vm})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			t := newTable(4, "RULE", "FROM", "TO", "AGE", "DESCRIPTION")
			for _, r := range list.Rules {
				t.add(r.ID, endText(r.Source), endText(r.Destination), a.age(r.CreatedAt), r.Description)
			}
			return a.printTable(t)
		},
	}
	cmd.Flags().StringVar(&vm, "vm", "", "only rules that name this `VM`")
	return cmd
}

func (a *app) firewallGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get RULE",
		Short: "Show one firewall rule",
		Args:  wantArgs(1, 1, "RULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			r, err := c.Firewall.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(r)
			}
			var b block
			b.add("Id", r.ID)
			b.add("From", endText(r.Source))
			b.add("To", endText(r.Destination))
			b.add("Description", r.Description)
			for _, d := range r.Dependencies {
				b.add("Goes with", strings.TrimSpace(string(d.Kind)+" "+d.ID+" "+d.Slug))
			}
			b.add("Created", a.moment(r.CreatedAt))
			return a.printBlock(&b)
		},
	}
}

func (a *app) firewallRm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm RULE...",
		Aliases: []string{"delete", "remove"},
		Short:   "Delete firewall rules",
		Long:    `Delete firewall rules. If one cannot be deleted the others still are, and the exit code is 1.`,
		Args:    wantArgs(1, -1, "RULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.removeEach(cmd.Context(), args, c.Firewall.Delete)
		},
	}
}

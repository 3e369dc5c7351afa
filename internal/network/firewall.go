package network

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// checkRule checks the parts of a rule that do not depend on where it stands.
// at is the path of the rule in the request, with a dot at its end if it has
// one.
func checkRule(at string, r api.FirewallRuleRequest) error {
	if err := checkAction(at, r.Action); err != nil {
		return err
	}
	if err := checkDescription(at, r.Description); err != nil {
		return err
	}
	if r.Source == nil {
		return required(at + "source")
	}
	if r.Destination == nil {
		return required(at + "destination")
	}
	if err := checkEndpoint(at+"source", *r.Source); err != nil {
		return err
	}
	return checkEndpoint(at+"destination", *r.Destination)
}

func checkAction(at string, a api.RuleAction) error {
	if a == api.ActionAllow {
		return nil
	}
	return fault.BadField(at+"action", "must be %q", api.ActionAllow).Hint("what no rule allows is closed: there are no other actions")
}

func checkDescription(at string, text *string) error {
	if text == nil {
		return nil
	}
	if n := utf8.RuneCountInString(*text); n > MaxDescription {
		return fault.BadField(at+"description", "%d characters are more than %d", n, MaxDescription).Hint("shorten it")
	}
	if strings.ContainsRune(*text, 0) {
		return fault.BadField(at+"description", "has a NUL character").Hint("leave it out")
	}
	return nil
}

func required(path string) error {
	return fault.BadField(path, "is required").Hint("send an object, such as {\"public\": true}")
}

func checkEndpoint(path string, e api.FirewallEndpoint) error {
	for _, f := range []struct {
		name  string
		value *string
	}{{"vmId", e.VMID}, {"vpcId", e.VPCID}, {"tunnelId", e.TunnelID}, {"cidr", e.CIDR}} {
		if f.value != nil && *f.value == "" {
			return fault.BadField(path+"."+f.name, "is empty").Hint("leave it out, or name something")
		}
	}
	if err := checkPublic(path, e.Public, e.VMID != nil || e.VPCID != nil || e.TunnelID != nil, "vmId, vpcId or tunnelId"); err != nil {
		return err
	}
	if e.CIDR != nil {
		if err := checkCIDR(path+".cidr", *e.CIDR); err != nil {
			return err
		}
	}
	return checkPort(path, e)
}

func checkPublic(path string, public *bool, named bool, names string) error {
	switch {
	case public == nil:
		return nil
	case !*public:
		return fault.BadField(path+".public", "can only be true").Hint("leave it out")
	case named:
		return fault.BadField(path+".public", "cannot stand beside %s", names).Hint("use one of them alone")
	}
	return nil
}

// checkCIDR accepts one spelling of each network, so that two rules about the
// same one can be seen to be.
func checkCIDR(path, text string) error {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return fault.BadField(path, "%q is not an address and a prefix length", clip(text)).Hint("write 203.0.113.0/24 or 2001:db8::/32")
	}
	if canonical := p.Masked().String(); canonical != text {
		return fault.BadField(path, "%q is not the plain form of a network", clip(text)).Hint("write %s", canonical)
	}
	return nil
}

func checkPort(path string, e api.FirewallEndpoint) error {
	if e.Protocol != nil {
		switch *e.Protocol {
		case api.ProtocolTCP, api.ProtocolUDP, api.ProtocolICMP:
		default:
			return fault.BadField(path+".protocol", "%q is not one of tcp, udp, icmp", clip(string(*e.Protocol))).Hint("leave it out for any")
		}
	}
	if e.Port == nil {
		return nil
	}
	switch {
	case *e.Port < 1 || *e.Port > 65535:
		return badPort(path)
	case e.Protocol == nil:
		return fault.BadField(path+".protocol", "is required beside a port").Hint(`send "tcp" or "udp"`)
	case *e.Protocol == api.ProtocolICMP:
		return fault.BadField(path+".port", "cannot stand beside icmp, which has no ports").Hint("leave the port out")
	}
	return nil
}

func badPort(path string) error {
	return fault.BadField(path+".port", "is not between 1 and 65535").Hint("name a port, such as 443")
}

// bare reports whether an end does not say what it is, but at most narrows it.
func bare(e api.FirewallEndpoint) bool {
	return e.VMID == nil && e.VPCID == nil && e.TunnelID == nil && e.CIDR == nil && e.Public == nil
}

// checkStandalone wants both ends named.
func checkStandalone(r api.FirewallRuleRequest) error {
	if err := checkRule("", r); err != nil {
		return err
	}
	for _, end := range []struct {
		name string
		e    api.FirewallEndpoint
	}{{"source", *r.Source}, {"destination", *r.Destination}} {
		if bare(end.e) {
			return fault.BadField(end.name, "does not say what the traffic is").
				Hint("add vmId, vpcId, tunnelId, cidr or public; it may be left out only in the firewall block of a create")
		}
	}
	return nil
}

// checkInline wants exactly one end unnamed: it is the VM that is created.
func checkInline(path string, r api.FirewallRuleRequest) error {
	if err := checkRule(path+".", r); err != nil {
		return err
	}
	return checkOneBare(path, bare(*r.Source), bare(*r.Destination))
}

func checkOneBare(path string, source, destination bool) error {
	switch {
	case source && destination:
		return fault.BadField(path, "both ends are the VM itself, which allows nothing").Hint(`name one end, for example {"public": true}`)
	case !source && !destination:
		return fault.BadField(path, "neither end is the VM that is created").
			Hint("leave one end unnamed, or create the rule by itself once the VM exists")
	}
	return nil
}

// clip bounds what an error repeats of the request.
func clip(s string) string {
	const limit = 100
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

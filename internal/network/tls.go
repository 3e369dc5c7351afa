package network

import (
	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// shape is what a TLS rule does, seen from the VM. An unnamed end of a rule in
// a create is the VM.
type shape int

const (
	ingress  shape = iota // from the Internet to a VM
	egress                // from a VM to the Internet
	internal              // from a VM to a VM
	pointless
)

func shapeOf(r api.TLSRuleRequest) shape {
	outside := isTrue(r.Destination.Public) || r.Destination.Host != nil
	switch {
	case isTrue(r.Source.Public) && outside:
		return pointless
	case isTrue(r.Source.Public):
		return ingress
	case outside:
		return egress
	}
	return internal
}

// checkTLSRule checks the parts of a rule that do not depend on where it
// stands, and returns its protocol.
func checkTLSRule(at string, r api.TLSRuleRequest) (api.TLSProtocol, error) {
	if err := checkAction(at, r.Action); err != nil {
		return "", err
	}
	if err := checkDescription(at, r.Description); err != nil {
		return "", err
	}
	if r.Source == nil {
		return "", required(at + "source")
	}
	if r.Destination == nil {
		return "", required(at + "destination")
	}
	if err := checkTLSSource(at+"source", *r.Source); err != nil {
		return "", err
	}
	if err := checkTLSDestination(at+"destination", *r.Destination); err != nil {
		return "", err
	}
	protocol, err := protocolOf(at, r)
	if err != nil {
		return "", err
	}
	if err := checkDomain(at+"domain", r.Domain, protocol); err != nil {
		return "", err
	}
	return protocol, checkShape(at, r, protocol)
}

func checkTLSSource(path string, e api.TLSEndpoint) error {
	if e.Host != nil {
		return fault.BadField(path+".host", "a source has no host").Hint("put it on the destination")
	}
	if e.Port != nil {
		return fault.BadField(path+".port", "a source has no port").Hint("put it on the destination")
	}
	if err := checkNames(path, e); err != nil {
		return err
	}
	return checkPublic(path, e.Public, e.VMID != nil || e.VPCID != nil, "vmId or vpcId")
}

func checkTLSDestination(path string, e api.TLSEndpoint) error {
	if e.VPCID != nil {
		return fault.BadField(path+".vpcId", "a destination is one place, not a network").Hint("name a vmId, a host, or public")
	}
	if err := checkNames(path, e); err != nil {
		return err
	}
	if err := checkPublic(path, e.Public, false, ""); err != nil {
		return err
	}
	places := 0
	for _, set := range []bool{e.VMID != nil, e.Host != nil, e.Public != nil} {
		if set {
			places++
		}
	}
	switch {
	case places > 1:
		return fault.BadField(path, "names more than one place").Hint("give one of vmId, host and public")
	case e.Port != nil && (*e.Port < 1 || *e.Port > 65535):
		return badPort(path)
	case e.Port == nil && (e.VMID != nil || e.Host != nil):
		return fault.BadField(path+".port", "is required").Hint("say which port the connection goes to")
	case e.Host != nil:
		return checkHost(path+".host", *e.Host)
	}
	return nil
}

func checkNames(path string, e api.TLSEndpoint) error {
	for _, f := range []struct {
		name  string
		value *string
	}{{"vmId", e.VMID}, {"vpcId", e.VPCID}, {"host", e.Host}} {
		if f.value != nil && *f.value == "" {
			return fault.BadField(path+"."+f.name, "is empty").Hint("leave it out, or name something")
		}
	}
	return nil
}

// protocolOf is the protocol that the rule states, or the one that its
// transforms need, or http.
func protocolOf(at string, r api.TLSRuleRequest) (api.TLSProtocol, error) {
	var protocol api.TLSProtocol
	if r.Protocol != nil {
		protocol = *r.Protocol
		switch protocol {
		case api.TLSHTTP, api.TLSTCP, api.TLSPostgres, api.TLSMinecraft, api.TLSIMAP, api.TLSIMAPS, api.TLSSOCKS5, api.TLSSMTP:
		default:
			return "", fault.BadField(at+"protocol", "%q is not one of http, tcp, postgres, minecraft, imap, imaps, socks5, smtp", clip(string(protocol))).
				Hint("leave it out for http")
		}
	}
	for i, t := range r.Transform {
		path := transformPath(at, i)
		if err := checkTransform(path, t); err != nil {
			return "", err
		}
		needed := transformProtocol(t)
		if protocol == "" {
			protocol = needed
		}
		if protocol != needed {
			return "", fault.BadField(path, "needs the protocol %s, and the rule has %s", needed, protocol).Hint("use one protocol in a rule")
		}
	}
	if protocol == "" {
		protocol = api.TLSHTTP
	}
	return protocol, nil
}

// checkShape checks what each direction allows.
func checkShape(at string, r api.TLSRuleRequest, p api.TLSProtocol) error {
	s := shapeOf(r)
	if s == pointless {
		return fault.BadField(at+"destination", "the Internet can reach that without a rule").
			Hint("name a VM: as the destination if it serves the domain, as the source if it may reach it")
	}
	if s == ingress && r.Domain == "*" {
		return fault.BadField(at+"domain", "* cannot be served").Hint("name a domain, or *.domain")
	}
	for _, check := range []func(string, api.TLSRuleRequest, api.TLSProtocol, shape) error{
		checkProtocolShape, checkTransformShape, checkMatch, checkForwardAuth,
	} {
		if err := check(at, r, p, s); err != nil {
			return err
		}
	}
	return nil
}

func checkProtocolShape(at string, r api.TLSRuleRequest, p api.TLSProtocol, s shape) error {
	switch p {
	case api.TLSTCP, api.TLSIMAP, api.TLSIMAPS:
		if s != ingress {
			return fault.BadField(at+"protocol", "%s only leads from the Internet to a VM", p).
				Hint(`use {"public": true} as the source and a VM as the destination, or another protocol`)
		}
	case api.TLSSOCKS5:
		if s != egress || r.Destination.Host == nil {
			return fault.BadField(at+"protocol", "socks5 only leads from a VM to a proxy that the destination names").
				Hint("give the destination the host and the port of the proxy")
		}
	case api.TLSSMTP:
		if s != ingress && containsMailbox(r.Domain) {
			return fault.BadField(at+"domain", "only a rule that receives mail has a mailbox").Hint("leave out what stands before the @")
		}
	case api.TLSHTTP, api.TLSPostgres, api.TLSMinecraft:
	}
	return nil
}

func checkMatch(at string, r api.TLSRuleRequest, p api.TLSProtocol, s shape) error {
	m := r.Match
	if m == nil {
		return nil
	}
	if p != api.TLSHTTP || s != egress {
		return fault.BadField(at+"match", "needs http that leads from a VM to the Internet").Hint("leave it out")
	}
	for _, method := range m.Method {
		if !isMethod(method) {
			return fault.BadField(at+"match.method", "%q is no HTTP method", clip(method)).Hint(`use methods in capitals, such as "GET"`)
		}
	}
	if m.Path != nil && (len(m.Path.Exact) == 0 || m.Path.Exact[0] != '/') {
		return fault.BadField(at+"match.path.exact", "is no path").Hint("begin it with a slash")
	}
	return nil
}

func isMethod(s string) bool {
	for _, c := range []byte(s) {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	return s != "" && len(s) <= 32
}

func checkForwardAuth(at string, r api.TLSRuleRequest, p api.TLSProtocol, s shape) error {
	switch {
	case r.ForwardAuth == nil:
		return nil
	case r.ForwardAuth.ID == "":
		return fault.BadField(at+"forwardAuth.id", "is empty").Hint("name a configuration, or leave forwardAuth out")
	case p != api.TLSHTTP || s != ingress:
		return fault.BadField(at+"forwardAuth", "needs http that leads from the Internet to a VM").Hint("leave it out")
	}
	return nil
}

// checkTLSStandalone wants both ends named.
func checkTLSStandalone(r api.TLSRuleRequest) (api.TLSProtocol, error) {
	p, err := checkTLSRule("", r)
	switch {
	case err != nil:
		return "", err
	case bareTLS(*r.Source):
		return "", fault.BadField("source", "does not say who connects").Hint("add vmId, vpcId or public")
	case bareTLS(*r.Destination):
		return "", fault.BadField("destination", "does not say where the connection goes").Hint("add vmId and port, host and port, or public")
	}
	return p, nil
}

// checkTLSInline wants exactly one end unnamed: it is the VM that is created.
func checkTLSInline(path string, r api.TLSRuleRequest) (api.TLSProtocol, error) {
	p, err := checkTLSRule(path+".", r)
	if err != nil {
		return "", err
	}
	if err := checkOneBare(path, bareTLS(*r.Source), bareTLS(*r.Destination)); err != nil {
		return "", err
	}
	if bareTLS(*r.Destination) && r.Destination.Port == nil {
		return "", fault.BadField(path+".destination.port", "is required").Hint("say which port of the VM the connection goes to")
	}
	return p, nil
}

func bareTLS(e api.TLSEndpoint) bool {
	return e.VMID == nil && e.VPCID == nil && e.Host == nil && e.Public == nil
}

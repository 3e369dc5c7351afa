package network

import (
	"regexp"
	"strings"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// The limits that DNS sets on names, and mail on mailboxes.
const (
	labelLength   = 63
	nameLength    = 253
	mailboxLength = 64
)

// checkDomain accepts a name, a wildcard *.name, or *. With smtp it is a route
// for mail: a mailbox may stand before an @.
func checkDomain(path, domain string, p api.TLSProtocol) error {
	bad := func(format string, args ...any) error {
		return fault.BadField(path, "%q: "+format, append([]any{clip(domain)}, args...)...).
			Hint("write a name in lower case, such as app.example.com or *.example.com")
	}
	name := domain
	if p == api.TLSSMTP {
		if at := strings.LastIndexByte(domain, '@'); at >= 0 {
			if !isMailbox(domain[:at]) {
				return bad("what stands before the @ is no mailbox")
			}
			if name = domain[at+1:]; name == "*" {
				return bad("a mailbox needs a domain")
			}
		}
	}
	if name == "*" {
		return nil
	}
	name = strings.TrimPrefix(name, "*.")
	labels := strings.Split(name, ".")
	if len(labels) < 2 || len(name) > nameLength {
		return bad("a name has at least two parts and at most %d characters", nameLength)
	}
	label := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	for _, l := range labels {
		if len(l) > labelLength || !label.MatchString(l) {
			return bad("each part has 1 to %d characters of a-z, 0-9 and hyphens inside", labelLength)
		}
	}
	return nil
}

func isMailbox(s string) bool {
	atoms := regexp.MustCompile("^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*$")
	return len(s) <= mailboxLength && atoms.MatchString(s)
}

// checkHost accepts a name or an address that a connection can be opened to.
func checkHost(path, host string) error {
	name := regexp.MustCompile(`^[A-Za-z0-9:]([A-Za-z0-9.:-]*[A-Za-z0-9:])?$`)
	if len(host) > nameLength || !name.MatchString(host) {
		return fault.BadField(path, "%q is no host", clip(host)).Hint("write a name or an address, without a port")
	}
	return nil
}

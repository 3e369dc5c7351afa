package pando

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pandovm/pando/api"
)

const (
	firewallPath = "/v5/firewall/rules"
	tlsPath      = "/v5/tls"
)

// Firewall holds the calls on firewall rules. VMs have no network yet: rules
// are kept, and take effect once they have one.
type Firewall struct{ c *Client }

// RuleFilter selects firewall rules. Zero fields select everything.
type RuleFilter struct {
	// VM is an id or a slug.
	VM string
	// Limit of 0 means no limit.
	Limit, Offset int
}

// Create adds a rule whose two ends both say what they are.
func (f *Firewall) Create(ctx context.Context, r api.FirewallRuleRequest) (api.FirewallRule, error) {
	return call[api.FirewallRule](ctx, f.c, http.MethodPost, firewallPath, r)
}

// List returns the rules that match, newest first.
func (f *Firewall) List(ctx context.Context, filter RuleFilter) (api.FirewallRuleList, error) {
	q := url.Values{}
	set(q, "vmId", filter.VM)
	setPage(q, filter.Limit, filter.Offset)
	return call[api.FirewallRuleList](ctx, f.c, http.MethodGet, withQuery(firewallPath, q), nil)
}

// Get returns one rule.
func (f *Firewall) Get(ctx context.Context, id string) (api.FirewallRule, error) {
	return callOn[api.FirewallRule](ctx, f.c, http.MethodGet, "firewall/rules", id, "", nil)
}

// Delete removes a rule.
func (f *Firewall) Delete(ctx context.Context, id string) error {
	_, err := callOn[nothing](ctx, f.c, http.MethodDelete, "firewall/rules", id, "", nil)
	return err
}

// TLS holds the calls on TLS rules. VMs have no network yet: rules are kept,
// and take effect once they have one.
type TLS struct{ c *Client }

// TLSFilter selects TLS rules. Zero fields select everything.
type TLSFilter struct {
	// VM is an id or a slug, Domain is matched exactly.
	VM, Domain string
	// Limit of 0 means no limit.
	Limit, Offset int
}

// Create adds a rule whose two ends both say what they are.
func (t *TLS) Create(ctx context.Context, r api.TLSRuleRequest) (api.TLSRule, error) {
	return call[api.TLSRule](ctx, t.c, http.MethodPost, tlsPath, r)
}

// List returns the rules that match, newest first.
func (t *TLS) List(ctx context.Context, filter TLSFilter) (api.TLSRuleList, error) {
	q := url.Values{}
	set(q, "vmId", filter.VM)
	set(q, "domain", filter.Domain)
	setPage(q, filter.Limit, filter.Offset)
	return call[api.TLSRuleList](ctx, t.c, http.MethodGet, withQuery(tlsPath, q), nil)
}

// Get returns one rule.
func (t *TLS) Get(ctx context.Context, id string) (api.TLSRule, error) {
	return callOn[api.TLSRule](ctx, t.c, http.MethodGet, "tls", id, "", nil)
}

// Replace puts a whole new rule in the place of the one with that id.
func (t *TLS) Replace(ctx context.Context, id string, r api.TLSRuleRequest) (api.TLSRule, error) {
	return callOn[api.TLSRule](ctx, t.c, http.MethodPut, "tls", id, "", r)
}

// Delete removes a rule.
func (t *TLS) Delete(ctx context.Context, id string) error {
	_, err := callOn[nothing](ctx, t.c, http.MethodDelete, "tls", id, "", nil)
	return err
}

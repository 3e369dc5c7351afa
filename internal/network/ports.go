package network

import (
	"context"
	"time"

	"github.com/pandovm/pando/api"
)

// The limits of rules.
const (
	// MaxFirewallRules and MaxTLSRules bound the rules of an account.
	MaxFirewallRules = 10_000
	MaxTLSRules      = 10_000
	// MaxDescription bounds a description in characters.
	MaxDescription = 1024
	// MaxPatchOperations and MaxPatchBytes bound a JSON patch.
	MaxPatchOperations = 128
	MaxPatchBytes      = 64 << 10
)

// Rule is a firewall rule.
type Rule struct {
	ID                   string
	Source, Destination  api.FirewallEndpoint
	Description          string
	CreatedAt, UpdatedAt time.Time
}

// VMs are the ids of the VMs that the rule names, source first.
func (r Rule) VMs() []string { return named(r.Source.VMID, r.Destination.VMID) }

// TLSRule is a TLS rule.
type TLSRule struct {
	ID                   string
	Domain               string
	Protocol             api.TLSProtocol
	Source, Destination  api.TLSEndpoint
	Transform            []api.TLSTransform
	Match                *api.TLSMatch
	Description          string
	CreatedAt, UpdatedAt time.Time
}

// VMs are the ids of the VMs that the rule names, source first.
func (r TLSRule) VMs() []string { return named(r.Source.VMID, r.Destination.VMID) }

// Door is the port on which the Internet reaches the rule's domain; 0 if it
// does not. Behind one door a domain leads to one place.
func (r TLSRule) Door() int {
	if !isTrue(r.Source.Public) {
		return 0
	}
	switch r.Protocol {
	case api.TLSPostgres:
		return 5432
	case api.TLSMinecraft:
		return 25565
	case api.TLSIMAP, api.TLSIMAPS:
		return 993
	case api.TLSSOCKS5:
		return 1080
	case api.TLSSMTP:
		return 25
	case api.TLSHTTP, api.TLSTCP:
	}
	return 443
}

// RuleFilter selects firewall rules. Zero fields select everything.
type RuleFilter struct {
	// VM, VPC and Tunnel are ids, or slugs in requests.
	VM, VPC, Tunnel string
	// Limit of 0 means no limit.
	Limit, Offset int
}

// TLSFilter selects TLS rules. Zero fields select everything.
type TLSFilter struct {
	VM, VPC string
	// Domain is matched exactly.
	Domain        string
	Limit, Offset int
}

// Repository keeps rules. All methods are safe for concurrent use. A rule is
// gone as soon as a VM that it names is.
type Repository interface {
	// InsertRules adds all rules or none. More rules than there may be are fault
	// CONFLICT with reason rule_limit, a domain that another rule serves one with
	// reason domain_taken, a VM that is gone NOT_FOUND.
	InsertRules(ctx context.Context, firewall []Rule, tls []TLSRule) error
	// FindRule returns the firewall rule; fault NOT_FOUND if there is none.
	FindRule(ctx context.Context, id string) (Rule, error)
	// ListRules returns the page asked for, newest first, and the number on all
	// pages. VM in the filter is an id.
	ListRules(ctx context.Context, f RuleFilter) ([]Rule, int, error)
	// DeleteRule removes the firewall rule; fault NOT_FOUND if there is none.
	DeleteRule(ctx context.Context, id string) error

	// FindTLSRule, ListTLSRules and DeleteTLSRule do the same for TLS rules.
	FindTLSRule(ctx context.Context, id string) (TLSRule, error)
	ListTLSRules(ctx context.Context, f TLSFilter) ([]TLSRule, int, error)
	DeleteTLSRule(ctx context.Context, id string) error
	// ReplaceTLSRule puts r in the place of the rule with its id, which keeps its
	// creation time, and returns the result; fault NOT_FOUND if there is none.
	ReplaceTLSRule(ctx context.Context, r TLSRule) (TLSRule, error)
}

// Machine is what rules need to know of a VM.
type Machine struct{ ID, Slug, DisplayName string }

// Machines knows the VMs.
type Machines interface {
	// FindMachine looks a VM up by id or slug; fault NOT_FOUND if there is none.
	FindMachine(ctx context.Context, ref string) (Machine, error)
	// NameMachines looks VMs up by id; those that are gone are left out.
	NameMachines(ctx context.Context, ids []string) (map[string]Machine, error)
}

// named lists the ids that are set, each once.
func named(ids ...*string) []string {
	var list []string
	for _, id := range ids {
		if id != nil && (len(list) == 0 || list[0] != *id) {
			list = append(list, *id)
		}
	}
	return list
}

func isTrue(b *bool) bool { return b != nil && *b }

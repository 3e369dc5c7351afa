package network

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// Service runs the use cases on rules. It is safe for concurrent use.
type Service struct {
	rules    Repository
	machines Machines
	now      func() time.Time
}

// NewService returns a Service over the rules and the VMs that they name.
func NewService(r Repository, m Machines, now func() time.Time) *Service {
	return &Service{rules: r, machines: m, now: now}
}

// CreateRule adds a firewall rule with both ends named.
func (s *Service) CreateRule(ctx context.Context, r api.FirewallRuleRequest) (Rule, error) {
	if err := checkStandalone(r); err != nil {
		return Rule{}, err
	}
	rule, err := s.rule(ctx, "", r)
	if err != nil {
		return Rule{}, err
	}
	return rule, s.rules.InsertRules(ctx, []Rule{rule}, nil)
}

// Rule returns one firewall rule.
func (s *Service) Rule(ctx context.Context, id string) (Rule, error) {
	return s.rules.FindRule(ctx, id)
}

// DeleteRule removes one firewall rule.
func (s *Service) DeleteRule(ctx context.Context, id string) error {
	return s.rules.DeleteRule(ctx, id)
}

// Rules returns a page of firewall rules, newest first, and the number on all
// pages. Whatever the filter names must exist.
func (s *Service) Rules(ctx context.Context, f RuleFilter) ([]Rule, int, error) {
	var err error
	if f.VM, err = s.filter(ctx, f.VM, f.VPC, f.Tunnel); err != nil {
		return nil, 0, err
	}
	return s.rules.ListRules(ctx, f)
}

// CreateTLSRule adds a TLS rule with both ends named.
func (s *Service) CreateTLSRule(ctx context.Context, r api.TLSRuleRequest) (TLSRule, error) {
	rule, err := s.standaloneTLS(ctx, r)
	if err != nil {
		return TLSRule{}, err
	}
	return rule, s.rules.InsertRules(ctx, nil, []TLSRule{rule})
}

// ReplaceTLSRule puts a whole new rule under the id of an old one.
func (s *Service) ReplaceTLSRule(ctx context.Context, id string, r api.TLSRuleRequest) (TLSRule, error) {
	rule, err := s.standaloneTLS(ctx, r)
	if err != nil {
		return TLSRule{}, err
	}
	rule.ID = id
	return s.rules.ReplaceTLSRule(ctx, rule)
}

func (s *Service) standaloneTLS(ctx context.Context, r api.TLSRuleRequest) (TLSRule, error) {
	p, err := checkTLSStandalone(r)
	if err != nil {
		return TLSRule{}, err
	}
	return s.tlsRule(ctx, "", r, p)
}

// TLSRule returns one TLS rule.
func (s *Service) TLSRule(ctx context.Context, id string) (TLSRule, error) {
	return s.rules.FindTLSRule(ctx, id)
}

// DeleteTLSRule removes one TLS rule.
func (s *Service) DeleteTLSRule(ctx context.Context, id string) error {
	return s.rules.DeleteTLSRule(ctx, id)
}

// TLSRules returns a page of TLS rules, newest first, and the number on all
// pages. Whatever the filter names must exist.
func (s *Service) TLSRules(ctx context.Context, f TLSFilter) ([]TLSRule, int, error) {
	var err error
	if f.VM, err = s.filter(ctx, f.VM, f.VPC, ""); err != nil {
		return nil, 0, err
	}
	return s.rules.ListTLSRules(ctx, f)
}

// Names returns what the VMs of the rules are called now, by id.
func (s *Service) Names(ctx context.Context, ids []string) (map[string]Machine, error) {
	return s.machines.NameMachines(ctx, ids)
}

// filter returns the id of the VM that a filter names.
func (s *Service) filter(ctx context.Context, vm, vpc, tunnel string) (string, error) {
	if vpc != "" {
		return "", unknown("vpcId", "private network", vpc)
	}
	if tunnel != "" {
		return "", unknown("tunnelId", "tunnel", tunnel)
	}
	if vm == "" {
		return "", nil
	}
	m, err := s.machines.FindMachine(ctx, vm)
	return m.ID, at(err, "vmId")
}

// rule makes a rule of a request that was checked: names become ids.
func (s *Service) rule(ctx context.Context, path string, r api.FirewallRuleRequest) (Rule, error) {
	now := s.now()
	out := Rule{ID: "fw-" + uuid.NewString(), Source: *r.Source, Destination: *r.Destination, CreatedAt: now, UpdatedAt: now}
	if r.Description != nil {
		out.Description = *r.Description
	}
	for _, end := range []struct {
		name string
		e    *api.FirewallEndpoint
	}{{"source", &out.Source}, {"destination", &out.Destination}} {
		if end.e.TunnelID != nil {
			return Rule{}, unknown(path+end.name+".tunnelId", "tunnel", *end.e.TunnelID)
		}
		if err := s.resolve(ctx, path+end.name, &end.e.VMID, end.e.VPCID); err != nil {
			return Rule{}, err
		}
	}
	return out, nil
}

func (s *Service) tlsRule(ctx context.Context, path string, r api.TLSRuleRequest, p api.TLSProtocol) (TLSRule, error) {
	now := s.now()
	out := TLSRule{
		ID: "tls-" + uuid.NewString(), Domain: r.Domain, Protocol: p, Source: *r.Source, Destination: *r.Destination,
		Transform: r.Transform, Match: r.Match, CreatedAt: now, UpdatedAt: now,
	}
	if r.Description != nil {
		out.Description = *r.Description
	}
	if r.ForwardAuth != nil {
		return TLSRule{}, unknown(path+"forwardAuth.id", "forward-auth configuration", r.ForwardAuth.ID)
	}
	if err := s.resolve(ctx, path+"source", &out.Source.VMID, out.Source.VPCID); err != nil {
		return TLSRule{}, err
	}
	return out, s.resolve(ctx, path+"destination", &out.Destination.VMID, nil)
}

// resolve replaces the name of a VM by its id.
func (s *Service) resolve(ctx context.Context, path string, vm **string, vpc *string) error {
	if vpc != nil {
		return unknown(path+".vpcId", "private network", *vpc)
	}
	if *vm == nil {
		return nil
	}
	m, err := s.machines.FindMachine(ctx, **vm)
	if err != nil {
		return at(err, path+".vmId")
	}
	*vm = &m.ID
	return nil
}

// at names the field in whose value something was not found.
func at(err error, field string) error {
	f := fault.As(err)
	if f == nil {
		return err
	}
	c := *f
	c.Field, c.Message = field, field+": "+f.Message
	return &c
}

func unknown(field, kind, ref string) error {
	return &fault.Error{
		Code: api.CodeNotFound, Field: field, Message: fmt.Sprintf("%s: no %s is called %q", field, kind, clip(ref)),
		Remedy: "leave it out: this version has none",
	}
}

package network

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/pandovm/pando/api"
)

// Plan is the rules of a VM that does not exist yet. It is for one goroutine.
type Plan struct {
	service *Service
	// Firewall and TLS are complete once the plan is attached.
	Firewall []Rule
	TLS      []TLSRule
}

// Plan checks the rules in the request of a create. An end that names nothing
// is the VM that is to be created.
func (s *Service) Plan(ctx context.Context, firewall []api.FirewallRuleRequest, tls []api.TLSRuleRequest) (*Plan, error) {
	p := &Plan{service: s}
	for i, r := range firewall {
		path := fmt.Sprintf("firewall.rules[%d]", i)
		if err := checkInline(path, r); err != nil {
			return nil, err
		}
		rule, err := s.rule(ctx, path+".", r)
		if err != nil {
			return nil, err
		}
		p.Firewall = append(p.Firewall, rule)
	}
	for i, r := range tls {
		path := fmt.Sprintf("tls.rules[%d]", i)
		protocol, err := checkTLSInline(path, r)
		if err != nil {
			return nil, err
		}
		rule, err := s.tlsRule(ctx, path+".", r, protocol)
		if err != nil {
			return nil, err
		}
		p.TLS = append(p.TLS, rule)
	}
	return p, nil
}

// Attach puts the VM into the ends that name nothing and keeps the rules, all
// or none.
func (p *Plan) Attach(ctx context.Context, vmID string) error {
	for i := range p.Firewall {
		r := &p.Firewall[i]
		if bare(r.Source) {
			r.Source.VMID = &vmID
		} else {
			r.Destination.VMID = &vmID
		}
	}
	for i := range p.TLS {
		r := &p.TLS[i]
		if bareTLS(r.Source) {
			r.Source.VMID = &vmID
		} else {
			r.Destination.VMID = &vmID
		}
	}
	if len(p.Firewall)+len(p.TLS) == 0 {
		return nil
	}
	return p.service.rules.InsertRules(ctx, p.Firewall, p.TLS)
}

// RulesOf returns all rules that name a VM, in the order in which they were made.
func (s *Service) RulesOf(ctx context.Context, vmID string) ([]Rule, []TLSRule, error) {
	firewall, _, err := s.rules.ListRules(ctx, RuleFilter{VM: vmID})
	if err != nil {
		return nil, nil, err
	}
	tls, _, err := s.rules.ListTLSRules(ctx, TLSFilter{VM: vmID})
	if err != nil {
		return nil, nil, err
	}
	slices.Reverse(firewall)
	slices.Reverse(tls)
	return firewall, tls, nil
}

// CopyRules gives each VM in to its own copy of every rule that names from. A
// domain that the Internet reaches stays with the VM that has it: it leads to
// one place.
func (s *Service) CopyRules(ctx context.Context, from string, to []string) error {
	firewall, tls, err := s.RulesOf(ctx, from)
	if err != nil {
		return err
	}
	var copies []Rule
	var tlsCopies []TLSRule
	now := s.now()
	for _, id := range to {
		for _, r := range firewall {
			r.ID, r.CreatedAt, r.UpdatedAt = "fw-"+uuid.NewString(), now, now
			r.Source.VMID, r.Destination.VMID = swap(r.Source.VMID, from, id), swap(r.Destination.VMID, from, id)
			copies = append(copies, r)
		}
		for _, r := range tls {
			if r.Door() != 0 {
				continue
			}
			r.ID, r.CreatedAt, r.UpdatedAt = "tls-"+uuid.NewString(), now, now
			r.Source.VMID, r.Destination.VMID = swap(r.Source.VMID, from, id), swap(r.Destination.VMID, from, id)
			tlsCopies = append(tlsCopies, r)
		}
	}
	if len(copies)+len(tlsCopies) == 0 {
		return nil
	}
	return s.rules.InsertRules(ctx, copies, tlsCopies)
}

func swap(id *string, from, to string) *string {
	if id != nil && *id == from {
		return &to
	}
	return id
}

package httpapi

import (
	"context"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/network"
)

// notEnforced is said wherever rules are described.
const notEnforced = "VMs have no network in this version: rules are checked and kept, and everything stays closed. " +
	"They take effect once VMs have a network."

func (s *server) networkRoutes() []route {
	create := []api.Code{api.CodeBadRequest, api.CodeNotFound, api.CodeConflict}
	one := []api.Code{api.CodeNotFound}
	return []route{
		handle(Operation{
			Method: "GET", Path: "/v5/firewall/rules", ID: "listFirewallRules", Status: 200, Errors: one,
			Summary: "List firewall rules, newest first.",
			Query: append([]Parameter{
				vmParameter(), vpcParameter(),
				{Name: "tunnelId", Type: "string", Description: "Only rules that name this tunnel. There are none in this version: NOT_FOUND."},
			}, pageParameters()...),
		}, s.listFirewallRules),
		handle(Operation{
			Method: "POST", Path: "/v5/firewall/rules", ID: "createFirewallRule", Status: 200, Errors: create,
			Summary: "Allow traffic from a source to a destination.", Description: notEnforced,
		}, s.createFirewallRule),
		handle(Operation{
			Method: "GET", Path: "/v5/firewall/rules/{id}", ID: "getFirewallRule", Status: 200, Errors: one,
			Summary: "Get a firewall rule.",
		}, s.getFirewallRule),
		handle(Operation{
			Method: "DELETE", Path: "/v5/firewall/rules/{id}", ID: "deleteFirewallRule", Status: 204, Errors: one,
			Summary: "Delete a firewall rule.",
		}, s.deleteFirewallRule),
	}
}

func (s *server) tlsRoutes() []route {
	change := []api.Code{api.CodeBadRequest, api.CodeNotFound, api.CodeConflict, api.CodeUnavailable}
	one := []api.Code{api.CodeNotFound}
	return []route{
		handle(Operation{
			Method: "GET", Path: "/v5/tls", ID: "listTLSRules", Status: 200, Errors: one,
			Summary: "List TLS rules, newest first.",
			Query: append([]Parameter{
				vmParameter(), vpcParameter(),
				{Name: "domain", Type: "string", Description: "Only rules for exactly this domain."},
			}, pageParameters()...),
		}, s.listTLSRules),
		handle(Operation{
			Method: "POST", Path: "/v5/tls", ID: "createTLSRule", Status: 200, Errors: change,
			Summary: "Connect a name with a place.", Description: notEnforced,
		}, s.createTLSRule),
		handle(Operation{
			Method: "GET", Path: "/v5/tls/{id}", ID: "getTLSRule", Status: 200, Errors: one,
			Summary: "Get a TLS rule.",
		}, s.getTLSRule),
		handle(Operation{
			Method: "PUT", Path: "/v5/tls/{id}", ID: "replaceTLSRule", Status: 200, Errors: change,
			Summary: "Put a whole new rule in the place of an old one.", Description: "Its id and creation time stay. " + notEnforced,
		}, s.replaceTLSRule),
		handle(Operation{
			Method: "DELETE", Path: "/v5/tls/{id}", ID: "deleteTLSRule", Status: 204, Errors: one,
			Summary: "Delete a TLS rule.",
		}, s.deleteTLSRule),
	}
}

func vmParameter() Parameter {
	return Parameter{Name: "vmId", Type: "string", Description: "Only rules that name the VM with this id or slug."}
}

func vpcParameter() Parameter {
	return Parameter{Name: "vpcId", Type: "string", Description: "Only rules that name this private network. There are none in this version: NOT_FOUND."}
}

func (s *server) listFirewallRules(ctx context.Context, c call[none]) (api.FirewallRuleList, error) {
	found, total, err := s.network.Rules(ctx, network.RuleFilter{
		VM: c.query["vmId"], VPC: c.query["vpcId"], Tunnel: c.query["tunnelId"],
		Limit: c.query.number("limit"), Offset: c.query.number("offset"),
	})
	if err != nil {
		return api.FirewallRuleList{}, err
	}
	list, err := s.viewRules(ctx, found)
	return api.FirewallRuleList{Rules: list, TotalCount: total}, err
}

func (s *server) createFirewallRule(ctx context.Context, c call[api.FirewallRuleRequest]) (api.FirewallRule, error) {
	return s.viewRule(ctx)(s.network.CreateRule(ctx, c.body))
}

func (s *server) getFirewallRule(ctx context.Context, c call[none]) (api.FirewallRule, error) {
	return s.viewRule(ctx)(s.network.Rule(ctx, c.ref))
}

func (s *server) deleteFirewallRule(ctx context.Context, c call[none]) (none, error) {
	return none{}, s.network.DeleteRule(ctx, c.ref)
}

func (s *server) listTLSRules(ctx context.Context, c call[none]) (api.TLSRuleList, error) {
	found, total, err := s.network.TLSRules(ctx, network.TLSFilter{
		VM: c.query["vmId"], VPC: c.query["vpcId"], Domain: c.query["domain"],
		Limit: c.query.number("limit"), Offset: c.query.number("offset"),
	})
	if err != nil {
		return api.TLSRuleList{}, err
	}
	list, err := s.viewTLSRules(ctx, found)
	return api.TLSRuleList{Rules: list, TotalCount: total}, err
}

func (s *server) createTLSRule(ctx context.Context, c call[api.TLSRuleRequest]) (api.TLSRule, error) {
	return s.viewTLSRule(ctx)(s.network.CreateTLSRule(ctx, c.body))
}

func (s *server) getTLSRule(ctx context.Context, c call[none]) (api.TLSRule, error) {
	return s.viewTLSRule(ctx)(s.network.TLSRule(ctx, c.ref))
}

func (s *server) replaceTLSRule(ctx context.Context, c call[api.TLSRuleRequest]) (api.TLSRule, error) {
	return s.viewTLSRule(ctx)(s.network.ReplaceTLSRule(ctx, c.ref, c.body))
}

func (s *server) deleteTLSRule(ctx context.Context, c call[none]) (none, error) {
	return none{}, s.network.DeleteTLSRule(ctx, c.ref)
}

// viewRule shows the one rule that a use case returns.
func (s *server) viewRule(ctx context.Context) func(network.Rule, error) (api.FirewallRule, error) {
	return func(r network.Rule, err error) (api.FirewallRule, error) {
		if err != nil {
			return api.FirewallRule{}, err
		}
		list, err := s.viewRules(ctx, []network.Rule{r})
		if err != nil {
			return api.FirewallRule{}, err
		}
		return list[0], nil
	}
}

func (s *server) viewTLSRule(ctx context.Context) func(network.TLSRule, error) (api.TLSRule, error) {
	return func(r network.TLSRule, err error) (api.TLSRule, error) {
		if err != nil {
			return api.TLSRule{}, err
		}
		list, err := s.viewTLSRules(ctx, []network.TLSRule{r})
		if err != nil {
			return api.TLSRule{}, err
		}
		return list[0], nil
	}
}

func (s *server) viewRules(ctx context.Context, rules []network.Rule) ([]api.FirewallRule, error) {
	names, err := namesOf(ctx, s.network, rules)
	if err != nil {
		return nil, err
	}
	list := make([]api.FirewallRule, 0, len(rules))
	for _, r := range rules {
		list = append(list, api.FirewallRule{
			ID: r.ID, Action: api.ActionAllow, Source: r.Source, Destination: r.Destination, Description: r.Description,
			Dependencies: dependencies(r.VMs(), names), CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
		})
	}
	return list, nil
}

func (s *server) viewTLSRules(ctx context.Context, rules []network.TLSRule) ([]api.TLSRule, error) {
	names, err := namesOf(ctx, s.network, rules)
	if err != nil {
		return nil, err
	}
	list := make([]api.TLSRule, 0, len(rules))
	for _, r := range rules {
		list = append(list, api.TLSRule{
			ID: r.ID, AccountID: soleOwner, Action: api.ActionAllow, Domain: r.Domain, Protocol: r.Protocol,
			Source: r.Source, Destination: r.Destination, Transform: r.Transform, Match: r.Match, Description: r.Description,
			Dependencies: dependencies(r.VMs(), names), CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
		})
	}
	return list, nil
}

// namesOf looks up, once, what the VMs of all rules are called.
func namesOf[R interface{ VMs() []string }](ctx context.Context, s *network.Service, rules []R) (map[string]network.Machine, error) {
	var ids []string
	for _, r := range rules {
		ids = append(ids, r.VMs()...)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return s.Names(ctx, ids)
}

func dependencies(vms []string, names map[string]network.Machine) []api.RuleDependency {
	list := make([]api.RuleDependency, 0, len(vms))
	for _, id := range vms {
		list = append(list, api.RuleDependency{Kind: api.DependencyVM, ID: id, Slug: names[id].Slug, DisplayName: names[id].DisplayName})
	}
	return list
}

// withRules adds the rules to the answer of a create.
func (s *server) withRules(ctx context.Context, v api.VM, firewall []network.Rule, tls []network.TLSRule) (api.VM, error) {
	var err error
	if v.FirewallRules, err = s.viewRules(ctx, firewall); err != nil {
		return api.VM{}, err
	}
	v.TLSRules, err = s.viewTLSRules(ctx, tls)
	return v, err
}

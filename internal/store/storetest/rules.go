package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/network"
	"github.com/pandovm/pando/internal/vm"
)

// outRule is a firewall rule between a VM and the Internet.
func outRule(id, vmID string) network.Rule {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
	return network.Rule{
		ID: id, Source: api.FirewallEndpoint{VMID: &vmID}, Destination: api.FirewallEndpoint{Public: new(true)},
		CreatedAt: at, UpdatedAt: at,
	}
}

// fullRule has every field set that can be.
func fullRule() network.Rule {
	r := outRule("fw-full", "vm-1")
	r.Source.CIDR, r.Source.Port, r.Source.Protocol = new("10.0.0.0/8"), new(7), new(api.ProtocolUDP)
	r.Destination = api.FirewallEndpoint{VMID: new("vm-2"), Protocol: new(api.ProtocolICMP)}
	r.Description, r.UpdatedAt = "größe \"'%", r.CreatedAt.Add(time.Hour)
	return r
}

func tlsRule(id, domain, vmID string) network.TLSRule {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
	return network.TLSRule{
		ID: id, Domain: domain, Protocol: api.TLSHTTP, Source: api.TLSEndpoint{Public: new(true)},
		Destination: api.TLSEndpoint{VMID: &vmID, Port: new(8080)}, CreatedAt: at, UpdatedAt: at,
	}
}

func (b *bench) someVMs(ids ...string) {
	for _, id := range ids {
		must(b.t, b.InsertVM(b.t.Context(), vm.VM{ID: id, State: api.StateRunning, Slug: "slug-" + id, DisplayName: "Name of " + id}))
	}
}

func ruleRoundTrip(b *bench) {
	t, ctx := b.t, b.t.Context()
	b.someVMs("vm-1", "vm-2")
	full, least := fullRule(), outRule("fw-least", "vm-2")
	must(t, b.InsertRules(ctx, []network.Rule{full, least}, nil))
	equal(t, value(b.FindRule(ctx, "fw-full"))(t), full)
	equal(t, value(b.FindRule(ctx, "fw-least"))(t), least)
	must(t, b.DeleteRule(ctx, "fw-full"))
	_, err := b.FindRule(ctx, "fw-full")
	wantFault(t, err, api.CodeNotFound, "")
	wantFault(t, b.DeleteRule(ctx, "fw-full"), api.CodeNotFound, "")

	undated := outRule("fw-now", "vm-1")
	undated.CreatedAt, undated.UpdatedAt = time.Time{}, time.Time{}
	must(t, b.InsertRules(ctx, []network.Rule{undated}, nil))
	if got := value(b.FindRule(ctx, "fw-now"))(t); !got.CreatedAt.Equal(b.clock.Now()) || !got.UpdatedAt.Equal(b.clock.Now()) {
		t.Errorf("made at %v, want the clock's time", got.CreatedAt)
	}
}

func tlsRoundTrip(b *bench) {
	t, ctx := b.t, b.t.Context()
	b.someVMs("vm-1", "vm-2")
	full := tlsRule("tls-full", "*", "vm-1")
	full.Source, full.Destination = api.TLSEndpoint{VMID: new("vm-2")}, api.TLSEndpoint{Host: new("db.example.com"), Port: new(5432)}
	full.Transform = []api.TLSTransform{{JSONPatch: []api.JSONPatchOperation{{Op: "remove", Path: "/a"}, {Op: "move", Path: "/b", From: new("/c")}}}}
	full.Match = &api.TLSMatch{Method: []string{"GET"}, Path: &api.TLSPathMatch{Exact: "/x"}}
	full.Description = "d"
	least := tlsRule("tls-least", "app.example.com", "vm-1")
	must(t, b.InsertRules(ctx, nil, []network.TLSRule{full, least}))
	equal(t, value(b.FindTLSRule(ctx, "tls-full"))(t), full)
	equal(t, value(b.FindTLSRule(ctx, "tls-least"))(t), least)

	b.clock.Advance(time.Hour)
	changed := tlsRule("tls-full", "other.example.com", "vm-1")
	changed.CreatedAt, changed.UpdatedAt = b.clock.Now(), b.clock.Now()
	got := value(b.ReplaceTLSRule(ctx, changed))(t)
	changed.CreatedAt = full.CreatedAt
	equal(t, got, changed)
	equal(t, value(b.FindTLSRule(ctx, "tls-full"))(t), changed)
	missing := tlsRule("tls-none", "none.example.com", "vm-1")
	_, err := b.ReplaceTLSRule(ctx, missing)
	wantFault(t, err, api.CodeNotFound, "")
	must(t, b.DeleteTLSRule(ctx, "tls-least"))
	wantFault(t, b.DeleteTLSRule(ctx, "tls-least"), api.CodeNotFound, "")
}

// ruleCascade: a rule goes with any VM that it names, and with no other.
func ruleCascade(b *bench) {
	t, ctx := b.t, b.t.Context()
	b.someVMs("vm-1", "vm-2", "vm-3")
	between := fullRule()
	out := tlsRule("tls-out", "*", "")
	out.Source, out.Destination = api.TLSEndpoint{VMID: new("vm-2")}, api.TLSEndpoint{Public: new(true)}
	must(t, b.InsertRules(ctx, []network.Rule{between, outRule("fw-3", "vm-3"), outRule("fw-1", "vm-1")},
		[]network.TLSRule{tlsRule("tls-3", "three.example.com", "vm-3"), out}))
	must(t, b.DeleteVM(ctx, "vm-2"))
	rules, total, err := b.ListRules(ctx, network.RuleFilter{})
	must(t, err)
	if total != 2 || len(rules) != 2 || rules[0].ID != "fw-1" || rules[1].ID != "fw-3" {
		t.Errorf("got %d rules: %v", total, rules)
	}
	tls, total, err := b.ListTLSRules(ctx, network.TLSFilter{})
	must(t, err)
	if total != 1 || len(tls) != 1 || tls[0].ID != "tls-3" {
		t.Errorf("got %d TLS rules: %v", total, tls)
	}
	wantFault(t, b.InsertRules(ctx, []network.Rule{outRule("fw-4", "vm-1"), outRule("fw-5", "vm-2")}, nil), api.CodeNotFound, "")
	if _, total, _ := b.ListRules(ctx, network.RuleFilter{}); total != 2 {
		t.Error("a refused insert left rules behind")
	}
}

func ruleLists(b *bench) {
	t, ctx := b.t, b.t.Context()
	b.someVMs("vm-1", "vm-2")
	var want []string
	for i := range 5 {
		r := outRule(fmt.Sprintf("fw-%d", i), fmt.Sprintf("vm-%d", i%2+1))
		r.CreatedAt = r.CreatedAt.Add(time.Duration(i/2) * time.Hour) // Some are of one moment.
		must(t, b.InsertRules(ctx, []network.Rule{r}, nil))
		want = append([]string{r.ID}, want...)
	}
	for _, c := range []struct {
		filter network.RuleFilter
		want   []string
		total  int
	}{
		{network.RuleFilter{}, want, 5},
		{network.RuleFilter{Limit: 2, Offset: 1}, want[1:3], 5},
		{network.RuleFilter{Offset: 9}, nil, 5},
		{network.RuleFilter{VM: "vm-2"}, []string{"fw-3", "fw-1"}, 2},
		{network.RuleFilter{VM: "vm-1", Limit: 1}, []string{"fw-4"}, 3},
		{network.RuleFilter{VM: "vm-9"}, nil, 0},
	} {
		rules, total, err := b.ListRules(ctx, c.filter)
		must(t, err)
		var got []string
		for _, r := range rules {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, c.want) || total != c.total {
			t.Errorf("%+v: got %v of %d, want %v of %d", c.filter, got, total, c.want, c.total)
		}
	}
	must(t, b.InsertRules(ctx, nil, []network.TLSRule{tlsRule("tls-a", "a.example.com", "vm-1"), tlsRule("tls-b", "b.example.com", "vm-1")}))
	tls, total, err := b.ListTLSRules(ctx, network.TLSFilter{Domain: "a.example.com"})
	must(t, err)
	if total != 1 || tls[0].ID != "tls-a" {
		t.Errorf("got %v", tls)
	}
}

// ruleDoors: behind one door a domain leads to one place.
func ruleDoors(b *bench) {
	t, ctx := b.t, b.t.Context()
	b.someVMs("vm-1", "vm-2")
	must(t, b.InsertRules(ctx, nil, []network.TLSRule{tlsRule("tls-1", "a.example.com", "vm-1")}))
	spliced := tlsRule("tls-2", "a.example.com", "vm-2")
	spliced.Protocol = api.TLSTCP
	wantFault(t, b.InsertRules(ctx, nil, []network.TLSRule{spliced}), api.CodeConflict, api.ReasonDomainTaken)
	mail := tlsRule("tls-3", "a.example.com", "vm-2")
	mail.Protocol = api.TLSIMAP
	out := tlsRule("tls-4", "a.example.com", "vm-2")
	out.Source, out.Destination = api.TLSEndpoint{VMID: new("vm-2")}, api.TLSEndpoint{Public: new(true)}
	again := out
	again.ID = "tls-5"
	must(t, b.InsertRules(ctx, nil, []network.TLSRule{mail, out, again}))
	taken := tlsRule("tls-4", "a.example.com", "vm-2")
	_, err := b.ReplaceTLSRule(ctx, taken)
	wantFault(t, err, api.CodeConflict, api.ReasonDomainTaken)
	must(t, b.DeleteVM(ctx, "vm-1"))
	must(t, b.InsertRules(ctx, nil, []network.TLSRule{spliced}))
}

func ruleLimit(b *bench) {
	t, ctx := b.t, b.t.Context()
	b.someVMs("vm-1")
	rules := make([]network.Rule, network.MaxFirewallRules)
	for i := range rules {
		rules[i] = outRule(fmt.Sprintf("fw-%d", i), "vm-1")
	}
	must(t, b.InsertRules(ctx, rules, nil))
	wantFault(t, b.InsertRules(ctx, []network.Rule{outRule("fw-more", "vm-1")}, nil), api.CodeConflict, api.ReasonRuleLimit)
	must(t, b.DeleteRule(ctx, "fw-0"))
	must(t, b.InsertRules(ctx, []network.Rule{outRule("fw-more", "vm-1")}, nil))
	must(t, b.DeleteVM(ctx, "vm-1"))
	if _, total, err := b.ListRules(ctx, network.RuleFilter{}); err != nil || total != 0 {
		t.Errorf("%d rules are left, %v", total, err)
	}
}

func machines(b *bench) {
	t, ctx := b.t, b.t.Context()
	b.someVMs("vm-1", "vm-2")
	must(t, b.InsertVM(ctx, vm.VM{ID: "vm-3", State: api.StateStopped}))
	want := network.Machine{ID: "vm-1", Slug: "slug-vm-1", DisplayName: "Name of vm-1"}
	equal(t, value(b.FindMachine(ctx, "vm-1"))(t), want)
	equal(t, value(b.FindMachine(ctx, "slug-vm-1"))(t), want)
	_, err := b.FindMachine(ctx, "none")
	wantFault(t, err, api.CodeNotFound, "")
	equal(t, value(b.NameMachines(ctx, []string{"vm-1", "gone", "vm-3", "vm-1"}))(t), map[string]network.Machine{"vm-1": want, "vm-3": {ID: "vm-3"}})
	equal(t, value(b.NameMachines(ctx, nil))(t), map[string]network.Machine{})
}

// rulesLast adds rules that rulesLasted finds once the store was opened again.
func rulesLast(t *testing.T, s Store) {
	t.Helper()
	must(t, s.InsertVM(t.Context(), vm.VM{ID: "vm-2", State: api.StateRunning}))
	must(t, s.InsertRules(t.Context(), []network.Rule{fullRule()}, []network.TLSRule{tlsRule("tls-1", "a.example.com", "vm-1")}))
}

func rulesLasted(t *testing.T, s Store) {
	t.Helper()
	equal(t, value(s.FindRule(t.Context(), "fw-full"))(t), fullRule())
	equal(t, value(s.FindTLSRule(t.Context(), "tls-1"))(t), tlsRule("tls-1", "a.example.com", "vm-1"))
}

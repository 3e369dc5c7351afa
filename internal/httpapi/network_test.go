package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/network"
	"github.com/pandovm/pando/internal/vm"
)

// netLab is a lab whose store holds the VMs vm-1 (web) and vm-2 (db), and in
// which a create records its VM as the manager does.
func netLab(t *testing.T) *mortal {
	t.Helper()
	m := labOn(t, filepath.Join(t.TempDir(), "pando.db"))
	for id, slug := range map[string]string{"vm-1": "web", "vm-2": "db"} {
		if err := m.records.InsertVM(t.Context(), vm.VM{ID: id, Slug: slug, DisplayName: "The " + slug, State: api.StateRunning}); err != nil {
			t.Fatal(err)
		}
	}
	m.vms.create = func(ctx context.Context, p vm.CreateParams) (vm.VM, error) {
		v := vm.VM{ID: vm.ID(p.Seed, 0), State: api.StateRunning, CreatedAt: moment(), UpdatedAt: moment()}
		if err := m.records.InsertVM(ctx, v); err != nil {
			return vm.VM{}, err
		}
		if p.Attach == nil {
			return v, nil
		}
		return v, p.Attach(ctx, v.ID)
	}
	return m
}

// rule is a firewall rule in JSON.
func rule(source, destination string) string {
	return fmt.Sprintf(`{"action":"allow","source":%s,"destination":%s}`, source, destination)
}

// tls is a TLS rule in JSON; more are further members.
func tls(source, destination, domain string, more ...string) string {
	return fmt.Sprintf(`{"action":"allow","source":%s,"destination":%s,"domain":%q%s}`, source, destination, domain, strings.Join(append([]string{""}, more...), ","))
}

func create(firewall, tls string) string {
	return fmt.Sprintf(`{"firewall":{"rules":[%s]},"tls":{"rules":[%s]}}`, firewall, tls)
}

func TestFirewallRules(t *testing.T) {
	t.Parallel()
	l := netLab(t)
	var made api.FirewallRule
	l.send("POST", "/v5/firewall/rules", `{"action":"allow","source":{"vmId":"web"},
		"destination":{"vmId":"vm-2","port":5432,"protocol":"tcp"},"description":"the shop's database"}`).ok(200, &made)
	want := api.FirewallRule{
		ID: made.ID, Action: "allow", Source: api.FirewallEndpoint{VMID: new("vm-1")},
		Destination: api.FirewallEndpoint{VMID: new("vm-2"), Port: new(5432), Protocol: new(api.ProtocolTCP)},
		Description: "the shop's database", CreatedAt: moment(), UpdatedAt: moment(),
		Dependencies: []api.RuleDependency{
			{Kind: "vm", ID: "vm-1", Slug: "web", DisplayName: "The web"}, {Kind: "vm", ID: "vm-2", Slug: "db", DisplayName: "The db"},
		},
	}
	if diff := cmp.Diff(want, made); diff != "" || !strings.HasPrefix(made.ID, "fw-") {
		t.Errorf("id %s: %s", made.ID, diff)
	}
	var second api.FirewallRule
	l.send("POST", "/v5/firewall/rules", rule(`{"vmId":"web"}`, `{"public":true}`)).ok(200, &second)
	var got api.FirewallRule
	l.send("GET", "/v5/firewall/rules/"+made.ID, "").ok(200, &got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for query, ids := range map[string][]string{
		"": {second.ID, made.ID}, "?vmId=db": {made.ID}, "?vmId=vm-1&limit=1": {second.ID}, "?offset=1": {made.ID}, "?offset=5": {},
	} {
		var list api.FirewallRuleList
		l.send("GET", "/v5/firewall/rules"+query, "").ok(200, &list)
		got := []string{}
		for _, r := range list.Rules {
			got = append(got, r.ID)
		}
		if diff := cmp.Diff(ids, got); diff != "" {
			t.Errorf("%q: %s", query, diff)
		}
	}
	for query, field := range map[string]string{"vmId=none": "vmId", "vpcId=v": "vpcId", "tunnelId=t": "tunnelId"} {
		l.send("GET", "/v5/firewall/rules?"+query, "").failed(404, api.CodeNotFound, field)
	}
	if a := l.send("DELETE", "/v5/firewall/rules/"+made.ID, ""); a.status != 204 {
		t.Errorf("got %d", a.status)
	}
	l.send("DELETE", "/v5/firewall/rules/"+made.ID, "").failed(404, api.CodeNotFound, "")
	l.send("GET", "/v5/firewall/rules/"+made.ID, "").failed(404, api.CodeNotFound, "")
	l.send("PUT", "/v5/firewall/rules/"+second.ID, "{}").failed(405, api.CodeMethodNotAllowed, "")
}

func TestFirewallRuleIsRefused(t *testing.T) {
	t.Parallel()
	l := netLab(t)
	public := `{"public":true}`
	for body, field := range map[string]string{
		`{}`: "action", `[]`: "body", `{"action":"deny"}`: "action", `{"action":1}`: "action", `{"action":"allow"}`: "source",
		`{"action":"allow","source":{"vmId":"web"}}`:                                                      "destination",
		`{"action":"allow","source":{"vmId":"web"},"destination":null}`:                                   "destination",
		rule(`{"vmId":"web"}`, `[]`):                                                                      "destination",
		rule(`{}`, public):                                                                                "source",
		rule(`{"vmId":"web"}`, `{"port":1,"protocol":"tcp"}`):                                             "destination",
		rule(`{"vmId":"web","host":"x"}`, public):                                                         "source.host",
		rule(`{"vmId":""}`, public):                                                                       "source.vmId",
		rule(`{"vmId":7}`, public):                                                                        "source.vmId",
		rule(`{"vmId":"web","public":true}`, public):                                                      "source.public",
		rule(`{"vpcId":"v","public":true}`, public):                                                       "source.public",
		rule(`{"tunnelId":"t","public":true}`, public):                                                    "source.public",
		rule(`{"public":false}`, public):                                                                  "source.public",
		rule(`{"cidr":"10.0.0.1/8"}`, public):                                                             "source.cidr",
		rule(`{"cidr":"10.0.0.0"}`, public):                                                               "source.cidr",
		rule(`{"cidr":"10.0.0.0/33"}`, public):                                                            "source.cidr",
		rule(`{"cidr":"2001:DB8::/32"}`, public):                                                          "source.cidr",
		rule(`{"cidr":"::ffff:10.0.0.0/104"}`, public):                                                    "source.cidr",
		rule(`{"cidr":"fe80::%eth0/64"}`, public):                                                         "source.cidr",
		rule(`{"vmId":"web","port":80}`, public):                                                          "source.protocol",
		rule(`{"vmId":"web","port":0,"protocol":"tcp"}`, public):                                          "source.port",
		rule(`{"vmId":"web","port":65536,"protocol":"tcp"}`, public):                                      "source.port",
		rule(`{"vmId":"web","port":1.5,"protocol":"tcp"}`, public):                                        "source.port",
		rule(`{"vmId":"web","port":8,"protocol":"icmp"}`, public):                                         "source.port",
		rule(`{"vmId":"web","protocol":"sctp"}`, public):                                                  "source.protocol",
		`{"action":"allow","source":{"vmId":"web"},"destination":{"public":true},"note":"x"}`:             "note",
		`{"action":"allow","source":{"vmId":"web"},"destination":{"public":true},"description":"\u0000"}`: "description",
		`{"action":"allow","source":{"vmId":"web"},"destination":{"public":true},"description":"` +
			strings.Repeat("ä", network.MaxDescription+1) + `"}`: "description",
	} {
		l.send("POST", "/v5/firewall/rules", body).failed(400, api.CodeBadRequest, field)
	}
	for body, field := range map[string]string{
		rule(`{"vmId":"none"}`, public):         "source.vmId",
		rule(public, `{"vmId":"\u0000"}`):       "destination.vmId",
		rule(`{"vpcId":"v"}`, public):           "source.vpcId",
		rule(public, `{"tunnelId":"tun-1"}`):    "destination.tunnelId",
		rule(`{"vmId":"web"}`, `{"vpcId":"v"}`): "destination.vpcId",
	} {
		l.send("POST", "/v5/firewall/rules", body).failed(404, api.CodeNotFound, field)
	}
	l.send("POST", "/v5/firewall/rules", strings.Repeat("x", 2<<20)).failed(413, api.CodePayloadTooLarge, "body")
	var list api.FirewallRuleList
	if l.send("GET", "/v5/firewall/rules", "").ok(200, &list); list.TotalCount != 0 {
		t.Errorf("%d rules were made", list.TotalCount)
	}
}

// TestRulesOfACreate: the unnamed end is the new VM, and the rules go with it.
func TestRulesOfACreate(t *testing.T) {
	t.Parallel()
	l := netLab(t)
	body := create(
		rule(`{}`, `{"public":true}`)+","+rule(`{"cidr":"0.0.0.0/0"}`, `{"port":443,"protocol":"tcp"}`)+","+rule(`{}`, `{"vmId":"db"}`),
		tls(`{"public":true}`, `{"port":8080}`, "app.example.com")+","+tls(`{}`, `{"public":true}`, "*", `"match":{"method":["GET"],"path":{"exact":"/x"}}`),
	)
	var v api.VM
	first := l.send("POST", "/v5/vms", body, "Idempotency-Key", "k")
	first.ok(201, &v)
	if len(v.FirewallRules) != 3 || len(v.TLSRules) != 2 {
		t.Fatalf("got %s", first.body)
	}
	fw, in := v.FirewallRules, v.TLSRules[0]
	if *fw[0].Source.VMID != v.ID || *fw[1].Destination.VMID != v.ID || *fw[2].Source.VMID != v.ID || *fw[2].Destination.VMID != "vm-2" {
		t.Errorf("the new VM is not in the rules: %s", first.body)
	}
	if len(fw[2].Dependencies) != 2 || fw[1].Dependencies[0].ID != v.ID || in.Dependencies[0].ID != v.ID {
		t.Errorf("the dependencies are wrong: %s", first.body)
	}
	if in.Protocol != "http" || *in.Destination.VMID != v.ID || *in.Destination.Port != 8080 || in.AccountID == "" {
		t.Errorf("got %+v", in)
	}
	if again := l.send("POST", "/v5/vms", body, "Idempotency-Key", "k"); string(again.body) != string(first.body) {
		t.Errorf("the repetition got %s", again.body)
	}
	if err := l.records.DeleteVM(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v5/firewall/rules", "/v5/tls"} {
		var list struct {
			TotalCount int `json:"totalCount"`
		}
		if l.send("GET", path, "").ok(200, &list); list.TotalCount != 0 {
			t.Errorf("%s: %d rules outlived their VM", path, list.TotalCount)
		}
	}
}

func TestRulesOfACreateAreRefused(t *testing.T) {
	t.Parallel()
	l := netLab(t)
	l.vms.create = nil
	for _, c := range []struct {
		body   string
		status int
		code   api.Code
		field  string
	}{
		{create(rule(`{}`, `{}`), ""), 400, "BAD_REQUEST", "firewall.rules[0]"},
		{create(rule(`{}`, `{"public":true}`)+","+rule(`{"vmId":"web"}`, `{"public":true}`), ""), 400, "BAD_REQUEST", "firewall.rules[1]"},
		{create(rule(`{}`, `{"public":true,"x":1}`), ""), 400, "BAD_REQUEST", "firewall.rules[0].destination.x"},
		{create(`7`, ""), 400, "BAD_REQUEST", "firewall.rules[0]"},
		{create(rule(`{}`, `{"vmId":"none"}`), ""), 404, "NOT_FOUND", "firewall.rules[0].destination.vmId"},
		{create("", tls(`{}`, `{}`, "a.example.com")), 400, "BAD_REQUEST", "tls.rules[0]"},
		{create("", tls(`{"public":true}`, `{"vmId":"web","port":1}`, "a.example.com")), 400, "BAD_REQUEST", "tls.rules[0]"},
		{create("", tls(`{"vmId":"web"}`, `{}`, "a.example.com")), 400, "BAD_REQUEST", "tls.rules[0].destination.port"},
		{create("", tls(`{"public":true}`, `{}`, "a.example.com")), 400, "BAD_REQUEST", "tls.rules[0].destination.port"},
	} {
		l.send("POST", "/v5/vms", c.body).failed(c.status, c.code, c.field)
	}
}

func TestTLSRules(t *testing.T) {
	t.Parallel()
	l := netLab(t)
	var made, got, replaced api.TLSRule
	l.send("POST", "/v5/tls", tls(`{"public":true}`, `{"vmId":"web","port":3000}`, "app.example.com", `"description":"d"`)).ok(200, &made)
	if made.Protocol != "http" || *made.Destination.VMID != "vm-1" || len(made.Dependencies) != 1 || made.Description != "d" {
		t.Errorf("got %+v", made)
	}
	l.send("GET", "/v5/tls/"+made.ID, "").ok(200, &got)
	if diff := cmp.Diff(made, got); diff != "" {
		t.Error(diff)
	}
	l.send("POST", "/v5/tls", tls(`{"public":true}`, `{"vmId":"db","port":3000}`, "app.example.com")).failed(409, api.CodeConflict, "domain")
	l.send("PUT", "/v5/tls/"+made.ID, tls(`{"vmId":"db"}`, `{"host":"gate.example.com","port":1080}`, "*.example.com", `"protocol":"socks5"`)).ok(200, &replaced)
	if replaced.ID != made.ID || !replaced.CreatedAt.Equal(made.CreatedAt) || replaced.Protocol != "socks5" || *replaced.Source.VMID != "vm-2" {
		t.Errorf("got %+v", replaced)
	}
	l.send("PUT", "/v5/tls/tls-none", tls(`{"vmId":"db"}`, `{"public":true}`, "*")).failed(404, api.CodeNotFound, "")
	var list api.TLSRuleList
	for query, want := range map[string]int{"": 1, "?vmId=db": 1, "?vmId=web": 0, "?domain=*.example.com": 1, "?domain=x.example.com": 0} {
		if l.send("GET", "/v5/tls"+query, "").ok(200, &list); list.TotalCount != want {
			t.Errorf("%q: got %d, want %d", query, list.TotalCount, want)
		}
	}
	l.send("GET", "/v5/tls?vpcId=v", "").failed(404, api.CodeNotFound, "vpcId")
	l.send("GET", "/v5/tls/forward-auth", "").failed(404, api.CodeNotFound, "")
	if a := l.send("DELETE", "/v5/tls/"+made.ID, ""); a.status != 204 {
		t.Errorf("got %d", a.status)
	}
	l.send("DELETE", "/v5/tls/"+made.ID, "").failed(404, api.CodeNotFound, "")
}

func TestTLSRuleIsRefused(t *testing.T) {
	t.Parallel()
	l := netLab(t)
	public, web, domain := `{"public":true}`, `{"vmId":"web","port":80}`, "a.example.com"
	egress := func(more ...string) string { return tls(`{"vmId":"web"}`, public, domain, more...) }
	for body, field := range map[string]string{
		`{}`: "action", `{"action":"allow","domain":7}`: "domain", `{"action":"allow","domain":"a.b"}`: "source",
		tls(`{"host":"x"}`, web, domain): "source.host", tls(`{"vmId":"db","port":1}`, web, domain): "source.port",
		tls(`{"vmId":"db","public":true}`, web, domain): "source.public", tls(`{}`, web, domain): "source",
		tls(public, `{"vpcId":"v"}`, domain): "destination.vpcId", tls(public, `{"vmId":"web"}`, domain): "destination.port",
		tls(`{"vmId":"web"}`, `{"host":"x"}`, domain):                                         "destination.port",
		tls(public, `{"vmId":"web","port":70000}`, domain):                                    "destination.port",
		tls(public, `{"vmId":"web","host":"x","port":1}`, domain):                             "destination",
		tls(`{"vmId":"web"}`, `{"host":"a b","port":1}`, domain):                              "destination.host",
		tls(public, public, domain):                                                           "destination",
		tls(public, `{"host":"x","port":1}`, domain):                                          "destination",
		tls(`{"vmId":"db"}`, `{"port":1}`, domain):                                            "destination",
		tls(public, web, "*"):                                                                 "domain",
		tls(public, web, "localhost"):                                                         "domain",
		tls(public, web, "A.example.com"):                                                     "domain",
		tls(public, web, "a..com"):                                                            "domain",
		tls(public, web, "-a.com"):                                                            "domain",
		tls(public, web, "x@example.com"):                                                     "domain",
		tls(public, web, "a.*.com"):                                                           "domain",
		tls(public, web, strings.Repeat("a", 64)+".com"):                                      "domain",
		tls(public, web, domain, `"protocol":"gopher"`):                                       "protocol",
		egress(`"protocol":"tcp"`):                                                            "protocol",
		tls(`{"vmId":"db"}`, web, domain, `"protocol":"imap"`):                                "protocol",
		tls(public, web, domain, `"protocol":"socks5"`):                                       "protocol",
		egress(`"protocol":"socks5"`):                                                         "protocol",
		tls(public, web, ".x@a.example.com", `"protocol":"smtp"`):                             "domain",
		tls(`{"vmId":"db"}`, public, "x@a.com", `"protocol":"smtp"`):                          "domain",
		tls(public, web, domain, `"match":{}`):                                                "match",
		egress(`"match":{"method":["get"]}`):                                                  "match.method",
		egress(`"match":{"path":{"exact":"x"}}`):                                              "match.path.exact",
		egress(`"match":{"path":{"prefix":"/"}}`):                                             "match.path.prefix",
		egress(`"forwardAuth":{"id":"x"}`):                                                    "forwardAuth",
		egress(`"forwardAuth":{}`):                                                            "forwardAuth.id",
		egress(`"transform":[{}]`):                                                            "transform[0]",
		egress(`"transform":[{"headers":{"a":"b"},"smtp":{"username":"u","password":"p"}}]`):  "transform[0]",
		egress(`"transform":[{"magic":{}}]`):                                                  "transform[0].magic",
		egress(`"transform":[{"postgres":{"username":"u"}}]`):                                 "transform[0].postgres.password",
		egress(`"protocol":"http"`, `"transform":[{"smtp":{"username":"u","password":"p"}}]`): "transform[0]",
		egress(`"transform":[{"headers":{"a b":"c"}}]`):                                       "transform[0].headers",
		egress(`"transform":[{"jsonPatch":[{"op":"remove","path":"a"}]}]`):                    "transform[0].jsonPatch[0].path",
		egress(`"transform":[{"jsonPatch":[{"op":"burn","path":""}]}]`):                       "transform[0].jsonPatch[0].op",
		egress(`"transform":[{"jsonPatch":[{"op":"add","path":""}]}]`):                        "transform[0].jsonPatch[0].value",
		egress(`"transform":[{"jsonPatch":[{"op":"move","path":""}]}]`):                       "transform[0].jsonPatch[0].from",
		egress(`"transform":[{"jsonPatch":[]},{"jsonPatch":[]}]`):                             "transform",
		tls(public, web, domain, `"transform":[{"jsonPatch":[]}]`):                            "transform[0]",
		tls(`{"vmId":"db"}`, web, domain, `"transform":[{"headers":{"a":"b"}}]`):              "transform",
		egress(`"transform":[{"s3":{"region":"EU"}}]`):                                        "transform[0].s3.region",
	} {
		l.send("POST", "/v5/tls", body).failed(400, api.CodeBadRequest, field)
	}
	l.send("POST", "/v5/tls", tls(public, web, domain, `"forwardAuth":{"id":"fa-1"}`)).failed(404, api.CodeNotFound, "forwardAuth.id")
	l.send("POST", "/v5/tls", tls(`{"vpcId":"v"}`, public, domain)).failed(404, api.CodeNotFound, "source.vpcId")
	l.send("POST", "/v5/tls", tls(public, `{"vmId":"none","port":1}`, domain)).failed(404, api.CodeNotFound, "destination.vmId")
}

// TestSecretsAreRefused: they are neither kept nor repeated nor logged, right or
// wrong, as long as they cannot be sealed.
func TestSecretsAreRefused(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, transform := range []string{
		`{"headers":{"authorization":"hunter2"}}`,
		`{"jsonPatch":[{"op":"add","path":"/key","value":"hunter2"}]}`,
		`{"postgres":{"username":"u","password":"hunter2"}}`,
		`{"smtp":{"username":"u","password":"hunter2"}}`,
		`{"s3":{"region":"eu-1","credentials":{"accessKeyId":"A","secretAccessKey":"hunter2"},"scope":{"bucket":"bbb","prefix":"","operations":["GetObject"]}}}`,
	} {
		l := netLab(t)
		body := tls(`{"vmId":"web"}`, `{"public":true}`, "a.example.com", `"transform":[`+transform+`]`)
		a := l.send("POST", "/v5/tls", body)
		e := a.failed(503, api.CodeUnavailable, "transform[0]")
		if e.Reason != api.ReasonSealingMissing || e.Retryable || !strings.Contains(e.Message, "sealing not configured") {
			t.Errorf("got %+v", e)
		}
		l.log.line(t, e.RequestID)
		if strings.Contains(l.log.text()+string(a.body), secret) {
			t.Errorf("the secret of %s was repeated", transform)
		}
	}
	l := netLab(t)
	body := tls(`{"vmId":"web"}`, `{"public":true}`, "a.example.com", `"transform":[{"postgres":{"username":"u","password":271828}}]`)
	a := l.send("POST", "/v5/tls", body)
	e := a.failed(400, api.CodeBadRequest, "transform[0].postgres.password")
	l.log.line(t, e.RequestID)
	if strings.Contains(l.log.text()+string(a.body), "271828") {
		t.Errorf("a number in the place of a secret was repeated: %s", a.body)
	}
	// A patch that only removes has no secret.
	var made api.TLSRule
	l.send("POST", "/v5/tls", tls(`{"vmId":"web"}`, `{"public":true}`, "a.example.com", `"transform":[{"jsonPatch":[{"op":"remove","path":"/a"}]}]`)).ok(200, &made)
	if len(made.Transform) != 1 {
		t.Errorf("got %+v", made)
	}
}

// TestForksCopyRules: each child has its own, without the domains that only one
// VM can serve.
func TestForksCopyRules(t *testing.T) {
	t.Parallel()
	l := netLab(t)
	l.send("POST", "/v5/firewall/rules", rule(`{"vmId":"web"}`, `{"vmId":"db"}`)).ok(200, new(json.RawMessage))
	l.send("POST", "/v5/tls", tls(`{"public":true}`, `{"vmId":"web","port":80}`, "a.example.com")).ok(200, new(json.RawMessage))
	l.send("POST", "/v5/tls", tls(`{"vmId":"web"}`, `{"public":true}`, "*")).ok(200, new(json.RawMessage))
	for _, id := range []string{"vm-3", "vm-4"} {
		if err := l.records.InsertVM(t.Context(), vm.VM{ID: id, State: api.StateStarting}); err != nil {
			t.Fatal(err)
		}
	}
	rules := network.NewService(l.records, l.records, moment)
	if err := rules.CopyRules(t.Context(), "vm-1", []string{"vm-3", "vm-4"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"vm-3", "vm-4"} {
		firewall, names, err := rules.RulesOf(t.Context(), id)
		if err != nil || len(firewall) != 1 || len(names) != 1 {
			t.Fatalf("%s has %v and %v, %v", id, firewall, names, err)
		}
		if *firewall[0].Source.VMID != id || *firewall[0].Destination.VMID != "vm-2" || names[0].Domain != "*" {
			t.Errorf("%s has %v and %v", id, firewall, names)
		}
	}
	if firewall, names, err := rules.RulesOf(t.Context(), "vm-1"); err != nil || len(firewall) != 1 || len(names) != 2 {
		t.Errorf("the source has %v and %v, %v", firewall, names, err)
	}
}

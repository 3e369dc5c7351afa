package openapi

import (
	"time"

	"github.com/pandovm/pando/internal/command"
	"github.com/pandovm/pando/internal/field"
	"github.com/pandovm/pando/internal/httpapi"
	"github.com/pandovm/pando/internal/network"
	"github.com/pandovm/pando/internal/vm"
)

// limits are the constraints on request fields, from the constants that the use
// cases check. A nil takes a keyword away.
func limits() map[string]schema {
	slug := schema{"maxLength": vm.MaxSlugLength, "pattern": `^([a-z0-9]+(-[a-z0-9]+)*)?$`}
	name := schema{"maxLength": vm.MaxDisplayName}
	metadata := schema{
		"maxProperties": vm.MaxMetadataEntries,
		"propertyNames": schema{"minLength": 1, "maxLength": vm.MaxMetadataLength},
		"additionalProperties": schema{
			"type": "string", "maxLength": vm.MaxMetadataLength,
		},
	}
	timer := schema{"minimum": -1, "maximum": int64(field.MaxTimer / time.Second)}
	rules := schema{"maxItems": vm.MaxAntiAffinity}
	text := schema{"minLength": 1, "maxLength": command.MaxCommandBytes}
	env := schema{"propertyNames": schema{"pattern": `^[A-Za-z_][A-Za-z0-9_]*$`}}
	stdin := schema{"contentEncoding": "base64", "x-max-bytes": command.MaxStdinBytes}
	return map[string]schema{
		"CreateVMRequest.IdleTimeoutSeconds": timer, "CreateVMRequest.AutoDeleteSeconds": timer, "CreateVMRequest.TTLSeconds": timer,
		"CreateVMRequest.MaxRunSeconds": timer, "CreateVMRequest.MaxRunTotalSeconds": timer,
		"UpdateVMRequest.IdleTimeoutSeconds": timer, "UpdateVMRequest.AutoDeleteSeconds": timer, "UpdateVMRequest.TTLSeconds": timer,
		"UpdateVMRequest.MaxRunSeconds": timer, "UpdateVMRequest.MaxRunTotalSeconds": timer,
		"UpdateVMRequest.Slug": slug, "UpdateVMRequest.DisplayName": name, "UpdateVMRequest.Metadata": metadata,
		"CreateSnapshotRequest.AutoDeleteSeconds": timer, "CreateSnapshotRequest.TTLSeconds": timer,
		"UpdateSnapshotRequest.AutoDeleteSeconds": timer, "UpdateSnapshotRequest.TTLSeconds": timer,
		"UpdateSnapshotRequest.Slug": slug, "UpdateSnapshotRequest.DisplayName": name,
		"Placement.AntiAffinity": rules, "AntiAffinity.Topology": {"enum": []string{"node"}},
		"Selector.MatchLabels": {"minProperties": 1, "maxProperties": vm.MaxMatchLabels},
		"CreateVMRequest.Slug": slug, "CreateVMRequest.DisplayName": name, "CreateVMRequest.Metadata": metadata,
		"ForkVMRequest.Slug": slug, "ForkVMRequest.DisplayName": name, "ForkVMRequest.Metadata": metadata,
		"CreateSnapshotRequest.Slug": slug, "CreateSnapshotRequest.DisplayName": name,
		"FirewallRuleRequest.Description": {"maxLength": network.MaxDescription}, "TLSRuleRequest.Description": {"maxLength": network.MaxDescription},
		"FirewallEndpoint.Port": {"minimum": 1, "maximum": 65535}, "TLSEndpoint.Port": {"minimum": 1, "maximum": 65535},
		"FirewallRuleRequest.Source": object("FirewallEndpoint"), "FirewallRuleRequest.Destination": object("FirewallEndpoint"),
		"TLSRuleRequest.Source": object("TLSEndpoint"), "TLSRuleRequest.Destination": object("TLSEndpoint"),
		"TLSObjectStore.Credentials": object("TLSObjectStoreCredentials"), "TLSObjectStore.Scope": object("TLSObjectStoreScope"),
		"TLSTransform.JSONPatch":   {"maxItems": network.MaxPatchOperations},
		"ForkVMRequest.Count":      {"minimum": 1, "maximum": vm.MaxForkChildren, "default": 1},
		"CreateVMRequest.Firewall": object("Firewall"),
		"ExecRequest.Command":      text, "StartExecRequest.Command": text,
		"ExecRequest.Env": env, "StartExecRequest.Env": env,
		"ExecRequest.Stdin": stdin, "StartExecRequest.Stdin": stdin,
		"ExecRequest.TimeoutMs":      {"minimum": 1, "maximum": command.MaxTimeout.Milliseconds(), "default": command.DefaultTimeout.Milliseconds()},
		"StartExecRequest.TimeoutMs": {"minimum": 1, "maximum": command.MaxTimeout.Milliseconds()},
		"ExecResponse.Stdout":        {"x-max-bytes": command.MaxOutputBytes},
		"ExecResponse.Stderr":        {"x-max-bytes": command.MaxOutputBytes},
		"ExecEvent.Data":             {"type": "string", "contentEncoding": "base64"},
	}
}

// object is a field that a request must have and that is an object: Go has a
// pointer there, to tell an empty object from none.
func object(name string) schema { return schema{"anyOf": nil, "$ref": "#/components/schemas/" + name} }

// overview is all limits in one place, for people and for clients that want to
// know them before they ask.
func overview() map[string]any {
	out := map[string]any{}
	for _, l := range httpapi.Limits() {
		out[l.Name] = map[string]any{"value": l.Value, "unit": l.Unit}
	}
	return out
}

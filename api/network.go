package api

import (
	"encoding/json"
	"time"
)

// RuleAction is what a rule does. Everything that no rule allows is closed.
type RuleAction string

// ActionAllow allows what the rule describes.
const ActionAllow RuleAction = "allow"

// Protocol is a transport protocol of a firewall rule.
type Protocol string

// The protocols of firewall rules.
const (
	// ProtocolTCP has ports.
	ProtocolTCP Protocol = "tcp"
	// ProtocolUDP has ports.
	ProtocolUDP Protocol = "udp"
	// ProtocolICMP has none.
	ProtocolICMP Protocol = "icmp"
)

// FirewallEndpoint is one end of a firewall rule: traffic must match all the
// fields that are set.
type FirewallEndpoint struct {
	// VMID is a VM. Requests may name it by its slug; answers have the id.
	VMID *string `json:"vmId,omitempty"`
	// VPCID is a private network, by id or slug. There are none yet.
	VPCID *string `json:"vpcId,omitempty"`
	// TunnelID is a tunnel, by id. There are none yet.
	TunnelID *string `json:"tunnelId,omitempty"`
	// CIDR is a network and a prefix length, without host bits: 203.0.113.0/24.
	CIDR *string `json:"cidr,omitempty"`
	// Public is true for the public Internet. It cannot stand beside vmId, vpcId or tunnelId.
	Public *bool `json:"public,omitempty"`
	// Port is 1 to 65535 and needs a protocol that has ports.
	Port *int `json:"port,omitempty"`
	// Protocol narrows the rule to one protocol.
	Protocol *Protocol `json:"protocol,omitempty"`
}

// FirewallRuleRequest describes a firewall rule.
type FirewallRuleRequest struct {
	// Action is "allow".
	Action RuleAction `json:"action"`
	// Source and Destination each say what the traffic is. In the firewall block
	// of a create exactly one of them says nothing, or only a port and a protocol:
	// that one is the VM itself.
	Source      *FirewallEndpoint `json:"source"`
	Destination *FirewallEndpoint `json:"destination"`
	// Description is a note for people, of at most 1024 characters.
	Description *string `json:"description,omitempty"`
}

// FirewallRule allows traffic from a source to a destination. VMs have no
// network yet: rules are kept and take effect once they have one; until then
// everything is closed.
type FirewallRule struct {
	// ID is "fw-" and a UUID.
	ID string `json:"id"`
	// Action is "allow".
	Action      RuleAction       `json:"action"`
	Source      FirewallEndpoint `json:"source"`
	Destination FirewallEndpoint `json:"destination"`
	// Description is a note for people.
	Description string `json:"description,omitempty"`
	// Dependencies are the things that the rule names; it is deleted with any of them.
	Dependencies []RuleDependency `json:"dependencies"`
	// CreatedAt and UpdatedAt are when the rule was made and last changed.
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// DependencyKind says what a rule depends on.
type DependencyKind string

// The kinds of things that rules depend on.
const (
	// DependencyVM is a VM.
	DependencyVM DependencyKind = "vm"
	// DependencyVPC is a private network.
	DependencyVPC DependencyKind = "vpc"
	// DependencyTunnel is a tunnel.
	DependencyTunnel DependencyKind = "tunnel"
)

// RuleDependency is one thing that a rule names, as it is called now.
type RuleDependency struct {
	// Kind and ID say what it is.
	Kind DependencyKind `json:"kind"`
	ID   string         `json:"id"`
	// Slug and DisplayName are absent if it has none.
	Slug        string `json:"slug,omitempty"`
	DisplayName string `json:"displayName,omitempty"`
}

// FirewallRuleList is the answer to a list of firewall rules.
type FirewallRuleList struct {
	// Rules is in the order newest first.
	Rules []FirewallRule `json:"rules"`
	// TotalCount is the number of rules on all pages.
	TotalCount int `json:"totalCount"`
}

// Firewall is the firewall block of a create request.
type Firewall struct {
	// Rules may be empty: then everything is closed.
	Rules []FirewallRuleRequest `json:"rules"`
}

// TLSBlock is the TLS block of a create request.
type TLSBlock struct {
	// Rules may be empty.
	Rules []TLSRuleRequest `json:"rules"`
}

// TLSProtocol is what a TLS rule speaks.
type TLSProtocol string

// The protocols of TLS rules.
const (
	// TLSHTTP is HTTPS, terminated; the default.
	TLSHTTP TLSProtocol = "http"
	// TLSTCP passes TLS on as it is.
	TLSTCP TLSProtocol = "tcp"
	// TLSPostgres is PostgreSQL.
	TLSPostgres TLSProtocol = "postgres"
	// TLSMinecraft is Minecraft.
	TLSMinecraft TLSProtocol = "minecraft"
	// TLSIMAP is IMAP, terminated.
	TLSIMAP TLSProtocol = "imap"
	// TLSIMAPS is IMAP, passed on as it is.
	TLSIMAPS TLSProtocol = "imaps"
	// TLSSOCKS5 goes out through a SOCKS5 proxy.
	TLSSOCKS5 TLSProtocol = "socks5"
	// TLSSMTP is mail.
	TLSSMTP TLSProtocol = "smtp"
)

// TLSEndpoint is one end of a TLS rule. A source has VMID, VPCID or Public; a
// destination has VMID and Port, Host and Port, or Public.
type TLSEndpoint struct {
	// VMID is a VM. Requests may name it by its slug; answers have the id.
	VMID *string `json:"vmId,omitempty"`
	// VPCID is a private network, by id or slug. There are none yet.
	VPCID *string `json:"vpcId,omitempty"`
	// Public is, as a source, every client on the Internet, and as a destination
	// the place that the domain has there.
	Public *bool `json:"public,omitempty"`
	// Host is a host on the Internet.
	Host *string `json:"host,omitempty"`
	// Port is 1 to 65535.
	Port *int `json:"port,omitempty"`
}

// TLSRuleRequest describes a TLS rule.
type TLSRuleRequest struct {
	// Action is "allow".
	Action RuleAction `json:"action"`
	// Domain is a name such as "app.example.com", "*.example.com", or "*" for a
	// rule that goes out; with smtp it may have a mailbox before an @.
	Domain string `json:"domain"`
	// Protocol is "http" if it is left out and no transform needs another one.
	Protocol *TLSProtocol `json:"protocol,omitempty"`
	// Source and Destination are the ends. In the TLS block of a create exactly
	// one of them names nothing, or only a port: that one is the VM itself.
	Source      *TLSEndpoint `json:"source"`
	Destination *TLSEndpoint `json:"destination"`
	// Transform changes what passes. Secrets in it need sealing, which this
	// version does not have: UNAVAILABLE.
	Transform []TLSTransform `json:"transform,omitempty"`
	// Match limits the transforms to some requests.
	Match *TLSMatch `json:"match,omitempty"`
	// ForwardAuth asks somebody before a request is let through.
	ForwardAuth *TLSForwardAuth `json:"forwardAuth,omitempty"`
	// Description is a note for people, of at most 1024 characters.
	Description *string `json:"description,omitempty"`
}

// TLSTransform is one change to what passes; exactly one field is set. Secrets
// are write-only and read back as "***".
type TLSTransform struct {
	// Headers are set on HTTP requests; the values are secret.
	Headers map[string]string `json:"headers,omitempty"`
	// JSONPatch changes JSON bodies of HTTP requests, after RFC 6902; the values are secret.
	JSONPatch []JSONPatchOperation `json:"jsonPatch,omitempty"`
	// Postgres, SMTP and SOCKS5 log in on the VM's behalf.
	Postgres *TLSDatabaseLogin `json:"postgres,omitempty"`
	SMTP     *TLSLogin         `json:"smtp,omitempty"`
	SOCKS5   *TLSLogin         `json:"socks5,omitempty"`
	// S3 signs requests to an object store.
	S3 *TLSObjectStore `json:"s3,omitempty"`
}

// JSONPatchOperation is one operation of a JSON patch.
type JSONPatchOperation struct {
	// Op is add, remove, replace, move, copy or test.
	Op string `json:"op"`
	// Path is a JSON pointer, and From one where the operation has a source.
	Path string  `json:"path"`
	From *string `json:"from,omitempty"`
	// Value is any JSON value, null included, where the operation has one.
	Value json.RawMessage `json:"value,omitempty"`
}

// TLSLogin is a name and a password.
type TLSLogin struct {
	// Username and Password must not be empty; the password is secret.
	Username string `json:"username"`
	Password string `json:"password"`
}

// TLSDatabaseLogin is a name and a password for a database.
type TLSDatabaseLogin struct {
	// Username and Password must not be empty; the password is secret.
	Username string `json:"username"`
	Password string `json:"password"`
	// Database replaces the one that the client asks for.
	Database *string `json:"database,omitempty"`
}

// TLSObjectStore is access to a part of an object store.
type TLSObjectStore struct {
	// Region is that of the bucket.
	Region string `json:"region"`
	// Credentials are secret.
	Credentials *TLSObjectStoreCredentials `json:"credentials"`
	// Scope is what may be done.
	Scope *TLSObjectStoreScope `json:"scope"`
}

// TLSObjectStoreCredentials are the keys of an object store.
type TLSObjectStoreCredentials struct {
	// AccessKeyID, SecretAccessKey and SessionToken are as the store gave them.
	AccessKeyID     string  `json:"accessKeyId"`
	SecretAccessKey string  `json:"secretAccessKey"`
	SessionToken    *string `json:"sessionToken,omitempty"`
}

// TLSObjectStoreScope is what may be done in an object store.
type TLSObjectStoreScope struct {
	// Bucket and Prefix say where, Operations what.
	Bucket     string   `json:"bucket"`
	Prefix     string   `json:"prefix"`
	Operations []string `json:"operations"`
}

// TLSMatch selects HTTP requests; others pass without the transforms.
type TLSMatch struct {
	// Method lists HTTP methods; omitted means all.
	Method []string `json:"method,omitempty"`
	// Path is the path of the request; omitted means any.
	Path *TLSPathMatch `json:"path,omitempty"`
}

// TLSPathMatch selects a path.
type TLSPathMatch struct {
	// Exact is the whole path.
	Exact string `json:"exact"`
}

// TLSForwardAuth names who is asked before a request is let through.
type TLSForwardAuth struct {
	// ID is that of a forward-auth configuration. There are none yet.
	ID string `json:"id"`
}

// TLSRule connects a name with a place: a domain that a VM serves, a name that
// a VM may reach, or a VM that another one reaches by name. VMs have no network
// yet: rules are kept and take effect once they have one.
type TLSRule struct {
	// ID is "tls-" and a UUID.
	ID string `json:"id"`
	// AccountID is the owner: "local".
	AccountID string `json:"accountId"`
	// Action is "allow".
	Action RuleAction `json:"action"`
	// Domain is the name.
	Domain string `json:"domain"`
	// Protocol is what the rule speaks.
	Protocol    TLSProtocol `json:"protocol"`
	Source      TLSEndpoint `json:"source"`
	Destination TLSEndpoint `json:"destination"`
	// Transform changes what passes.
	Transform []TLSTransform `json:"transform,omitempty"`
	// Match limits the transforms to some requests.
	Match *TLSMatch `json:"match,omitempty"`
	// Description is a note for people.
	Description string `json:"description,omitempty"`
	// Dependencies are the things that the rule names; it is deleted with any of them.
	Dependencies []RuleDependency `json:"dependencies"`
	// CreatedAt and UpdatedAt are when the rule was made and last changed.
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// TLSRuleList is the answer to a list of TLS rules.
type TLSRuleList struct {
	// Rules is in the order newest first.
	Rules []TLSRule `json:"rules"`
	// TotalCount is the number of rules on all pages.
	TotalCount int `json:"totalCount"`
}

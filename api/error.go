package api

// Code is the stable, machine-readable class of an error, as it appears in the
// "code" field of the error envelope.
type Code string

// The codes of the /v5 API. Each has exactly one HTTP status, set in
// internal/httpapi.
const (
	// CodeBadRequest: the request is malformed or a field has an unacceptable value.
	CodeBadRequest Code = "BAD_REQUEST"
	// CodeAgentUnsupported: the agent in this guest is too old for what was asked.
	CodeAgentUnsupported Code = "AGENT_UNSUPPORTED"
	// CodeMissingCredentials: the request has no API key.
	CodeMissingCredentials Code = "MISSING_CREDENTIALS"
	// CodeInvalidAPIKey: the API key is not one of the daemon's.
	CodeInvalidAPIKey Code = "INVALID_API_KEY"
	// CodeForbidden: the key is valid and does not allow this.
	CodeForbidden Code = "FORBIDDEN"
	// CodeNotFound: nothing has that id, slug or name.
	CodeNotFound Code = "NOT_FOUND"
	// CodeRouteNotFound: the API has no such path.
	CodeRouteNotFound Code = "ROUTE_NOT_FOUND"
	// CodeMethodNotAllowed: the path does not take that method.
	CodeMethodNotAllowed Code = "METHOD_NOT_ALLOWED"
	// CodeConflict: the request does not fit the present state of things.
	CodeConflict Code = "CONFLICT"
	// CodeVMNonResponsive: the guest stopped answering; what was asked of it may have happened.
	CodeVMNonResponsive Code = "VM_NON_RESPONSIVE"
	// CodePayloadTooLarge: the body is larger than the route takes.
	CodePayloadTooLarge Code = "PAYLOAD_TOO_LARGE"
	// CodeRangeNotSatisfiable: the range lies outside of the file.
	CodeRangeNotSatisfiable Code = "RANGE_NOT_SATISFIABLE"
	// CodeLimitExceeded: a limit of the account or the host is used up.
	CodeLimitExceeded Code = "LIMIT_EXCEEDED"
	// CodeRateLimited: too many of these requests in too short a time.
	CodeRateLimited Code = "RATE_LIMITED"
	// CodeUnavailable: the daemon cannot do this at the moment.
	CodeUnavailable Code = "UNAVAILABLE"
	// CodeBackgroundResultUnstorable: a background request was carried out, and its answer was too large to keep.
	CodeBackgroundResultUnstorable Code = "BACKGROUND_RESULT_UNSTORABLE"
	// CodeInternal: a fault of the daemon, which logged it under the request id.
	CodeInternal Code = "INTERNAL_ERROR"
)

// Reason refines a Code. It is Pando's own addition to the envelope: clients
// that know only Code lose nothing.
type Reason string

// The reasons that accompany a Code.
const (
	// ReasonWrongState: the VM's state does not allow this.
	ReasonWrongState Reason = "wrong_state"
	// ReasonSlugTaken: another VM or snapshot has the slug.
	ReasonSlugTaken Reason = "slug_taken"
	// ReasonPlacement: no host satisfies the placement rules.
	ReasonPlacement Reason = "placement_unsatisfiable"
	// ReasonRunBudgetSpent: the VM has run as long as maxRunTotalSeconds allows.
	ReasonRunBudgetSpent Reason = "run_budget_spent"
	// ReasonDiskFull: the disk of the host has no room.
	ReasonDiskFull Reason = "disk_full"
	// ReasonNoMemory: the host has not enough memory.
	ReasonNoMemory Reason = "no_memory"
	// ReasonSnapshotIncompatible: the snapshot was made on a CPU, QEMU or kernel that this host does not have.
	ReasonSnapshotIncompatible Reason = "snapshot_incompatible"
	// ReasonSnapshotCorrupt: a file of the snapshot is missing or damaged.
	ReasonSnapshotCorrupt Reason = "snapshot_corrupt"
	// ReasonSnapshotInUse: the snapshot cannot be deleted here.
	ReasonSnapshotInUse Reason = "snapshot_in_use"
	// ReasonEpochUnconfirmed: the guest did not confirm its clock, entropy and identity.
	ReasonEpochUnconfirmed Reason = "epoch_unconfirmed"
	// ReasonVMCrashed: the VM's process ended unexpectedly.
	ReasonVMCrashed Reason = "vm_crashed"
	// ReasonCommandEnded: the command has ended, or takes no more input.
	ReasonCommandEnded Reason = "command_ended"
	// ReasonWrongOffset: what was sent does not join what is there.
	ReasonWrongOffset Reason = "wrong_offset"
	// ReasonImageNotBuilt: the base image is not in the cache.
	ReasonImageNotBuilt Reason = "image_not_built"
	// ReasonCommandsRunning: commands or terminals run in the guest, and would be cut off.
	ReasonCommandsRunning Reason = "commands_running"
	// ReasonHostUnsupported: the host cannot do this.
	ReasonHostUnsupported Reason = "host_unsupported"
	// ReasonInterrupted: the request was ended before it was finished; it may have had an effect.
	ReasonInterrupted Reason = "interrupted"
	// ReasonIdempotencyKeyReused: the Idempotency-Key came with another request before.
	ReasonIdempotencyKeyReused Reason = "idempotency_key_reused"
	// ReasonRequestUnderWay: a request with the same Idempotency-Key is not finished yet.
	ReasonRequestUnderWay Reason = "request_under_way"
	// ReasonRuleLimit: there are as many rules as there may be.
	ReasonRuleLimit Reason = "rule_limit"
	// ReasonDomainTaken: another rule serves the domain.
	ReasonDomainTaken Reason = "domain_taken"
	// ReasonSealingMissing: secrets cannot be kept sealed here, so none are accepted.
	ReasonSealingMissing Reason = "sealing_missing"
)

// Error is the error envelope of every non-2xx response.
type Error struct {
	// Code is the stable class of the error.
	Code Code `json:"code"`
	// Message is prose for a person: what went wrong, naming the field.
	Message string `json:"message"`
	// Reason refines Code; empty where Code says it all.
	Reason Reason `json:"reason,omitempty"`
	// Field is the request field at fault, for example "count".
	Field string `json:"field,omitempty"`
	// Remedy says what the caller can do about it.
	Remedy string `json:"remedy,omitempty"`
	// Needed and Available are in bytes; set when a resource ran out.
	Needed    int64 `json:"needed,omitempty"`
	Available int64 `json:"available,omitempty"`
	// RequestID is the id under which the daemon logged the request.
	RequestID string `json:"requestId,omitempty"`
	// Retryable is true if the same request, sent again unchanged after a while,
	// may succeed and cannot do anything twice.
	Retryable bool `json:"retryable"`
}

// Error returns the code and the message in one line.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

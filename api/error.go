package api

// Code is the stable, machine-readable class of an error, as it appears in the
// "code" field of the error envelope.
type Code string

// The codes of the /v5 API that apply to VMs and snapshots. Each has exactly
// one HTTP status, set in internal/httpapi.
const (
	CodeBadRequest         Code = "BAD_REQUEST"
	CodeMissingCredentials Code = "MISSING_CREDENTIALS"
	CodeInvalidAPIKey      Code = "INVALID_API_KEY"
	CodeForbidden          Code = "FORBIDDEN"
	CodeNotFound           Code = "NOT_FOUND"
	CodeRouteNotFound      Code = "ROUTE_NOT_FOUND"
	CodeMethodNotAllowed   Code = "METHOD_NOT_ALLOWED"
	CodeConflict           Code = "CONFLICT"
	CodeVMNonResponsive    Code = "VM_NON_RESPONSIVE"
	CodePayloadTooLarge    Code = "PAYLOAD_TOO_LARGE"
	CodeLimitExceeded      Code = "LIMIT_EXCEEDED"
	CodeUnavailable        Code = "UNAVAILABLE"
	CodeInternal           Code = "INTERNAL_ERROR"
)

// Reason refines a Code. It is Pando's own addition to the envelope: clients
// that know only Code lose nothing.
type Reason string

// The reasons that accompany a Code.
const (
	ReasonWrongState           Reason = "wrong_state"
	ReasonSlugTaken            Reason = "slug_taken"
	ReasonDiskFull             Reason = "disk_full"
	ReasonNoMemory             Reason = "no_memory"
	ReasonSnapshotIncompatible Reason = "snapshot_incompatible"
	ReasonSnapshotCorrupt      Reason = "snapshot_corrupt"
	ReasonSnapshotInUse        Reason = "snapshot_in_use"
	ReasonEpochUnconfirmed     Reason = "epoch_unconfirmed"
	ReasonVMCrashed            Reason = "vm_crashed"
	ReasonImageNotBuilt        Reason = "image_not_built"
	ReasonHostUnsupported      Reason = "host_unsupported"
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
	// Needed and Available are bytes, set when a resource ran out.
	Needed    int64 `json:"needed,omitempty"`
	Available int64 `json:"available,omitempty"`
	// RequestID is the id under which the daemon logged the request.
	RequestID string `json:"requestId,omitempty"`
}

// Error returns the code and the message in one line.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

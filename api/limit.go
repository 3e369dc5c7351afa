package api

// LimitUnit says what the value of a limit counts.
type LimitUnit string

// The units of limits.
const (
	// UnitCount: things of the kind that the limit names.
	UnitCount LimitUnit = "count"
	// UnitBytes: bytes.
	UnitBytes LimitUnit = "bytes"
	// UnitCharacters: characters, which are bytes where only ASCII is allowed.
	UnitCharacters LimitUnit = "characters"
	// UnitMebibytes: MiB, of 1,048,576 bytes.
	UnitMebibytes LimitUnit = "mebibytes"
	// UnitMilliseconds: milliseconds.
	UnitMilliseconds LimitUnit = "milliseconds"
	// UnitSeconds: seconds.
	UnitSeconds LimitUnit = "seconds"
)

// Limit is one limit or default of the API.
type Limit struct {
	// Name is stable: what is limited, from the general to the particular, such
	// as "exec.timeout.max".
	Name string `json:"name"`
	// Value is in Unit.
	Value int64     `json:"value"`
	Unit  LimitUnit `json:"unit"`
	// Code is the error that exceeding the limit gives; absent if nothing fails,
	// as for a default.
	Code Code `json:"code,omitempty"`
	// Description says in a sentence what the limit means.
	Description string `json:"description"`
}

// LimitList is the answer to GET /v5/limits.
type LimitList struct {
	// Limits is in the order of the names.
	Limits []Limit `json:"limits"`
}

package api

// UpgradeAgentRequest is the body of POST /v5/vms/{id}/agent.
type UpgradeAgentRequest struct {
	// Force goes on though commands or terminals run in the VM. They are cut off:
	// they run on, without anybody to read their output or learn how they end.
	Force bool `json:"force,omitempty"`
}

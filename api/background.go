package api

// BackgroundStatus says how far a background request is.
type BackgroundStatus string

// BackgroundPending says that the work is under way.
const BackgroundPending BackgroundStatus = "pending"

// BackgroundRequest is the answer 202 to a request that goes on without its
// client, and to each question for its answer until the work has ended.
type BackgroundRequest struct {
	// RequestID is "bgr-" and a UUID; the header x-freestyle-background-request-id repeats it.
	RequestID string `json:"requestId"`
	// Status is "pending".
	Status BackgroundStatus `json:"status"`
	// ResultURL is where the answer can be fetched, as a path of this daemon.
	ResultURL string `json:"resultUrl"`
}

package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// authenticate checks the bearer key. It compares digests, so that the time it
// takes says nothing about the key, not even its length.
func (s *server) authenticate(r *http.Request) error {
	key := bearer(r.Header.Get("Authorization"))
	if key == "" {
		return &fault.Error{
			Code: api.CodeMissingCredentials, Message: "the request has no API key",
			Remedy: "send the header: Authorization: Bearer <key>",
		}
	}
	digest := sha256.Sum256([]byte(key))
	if subtle.ConstantTimeCompare(digest[:], s.keyDigest[:]) != 1 {
		return &fault.Error{
			Code: api.CodeInvalidAPIKey, Message: "the API key is not the daemon's",
			Remedy: "use the key in PANDO_API_KEY of the daemon, or in the file api-key in its data folder",
		}
	}
	return nil
}

func bearer(header string) string {
	scheme, key, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}

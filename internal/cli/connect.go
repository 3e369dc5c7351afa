package cli

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	pando "github.com/pandovm/pando/sdk"
)

// keyFile is the name of the API key's file in a data folder.
const keyFile = "api-key"

// client returns a client of the daemon that flags and environment name.
func (a *app) client() (*pando.Client, error) {
	base := a.baseURL()
	c, err := pando.New(pando.Options{BaseURL: base, APIKey: a.apiKey(base)})
	if err != nil {
		return nil, &usageError{message: err.Error(), fix: "set --url or PANDO_URL to an address like " + pando.DefaultURL}
	}
	return c, nil
}

func (a *app) baseURL() string {
	for _, u := range []string{a.url, a.Getenv("PANDO_URL")} {
		if u != "" {
			return u
		}
	}
	return pando.DefaultURL
}

// apiKey returns the key to send to base, or nothing. The key of this host's
// daemon is never offered to another host.
func (a *app) apiKey(base string) string {
	if key := strings.TrimSpace(a.Getenv("PANDO_API_KEY")); key != "" {
		return key
	}
	if !isLoopback(base) || a.DataDir == "" {
		return ""
	}
	key, err := os.ReadFile(filepath.Join(a.DataDir, keyFile))
	if err != nil {
		return "" // the daemon then asks for a key, and describe explains where it could come from
	}
	return strings.TrimSpace(string(key))
}

func isLoopback(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	host := u.Hostname()
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

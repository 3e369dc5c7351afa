package daemon

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// keyFile is the API key's file in the data folder.
const keyFile = "api-key"

// apiKey returns the key that clients must show: the given one, else the one
// in the data folder, which is made at the first start. path is empty when the
// key was given.
func apiKey(given, data string) (key, path string, err error) {
	if given != "" {
		return given, "", nil
	}
	path = filepath.Join(data, keyFile)
	old, err := os.ReadFile(path)
	if err == nil {
		key = strings.TrimSpace(string(old))
		if key == "" {
			return "", "", fmt.Errorf("read api key: %s is empty; remove it to get a new key", path)
		}
		return key, path, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", "", fmt.Errorf("read api key: %w", err)
	}
	return makeKey(path)
}

func makeKey(path string) (string, string, error) {
	secret := make([]byte, 30)
	if _, err := rand.Read(secret); err != nil {
		return "", "", fmt.Errorf("make api key: %w", err)
	}
	text := strings.ToLower(base32.StdEncoding.EncodeToString(secret))
	// Clients call the part before the first dash the id of the key.
	key := "pando-" + text
	if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
		return "", "", fmt.Errorf("keep api key: %w", err)
	}
	return key, path, nil
}

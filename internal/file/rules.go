package file

import (
	"encoding/hex"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// The limits, in bytes unless they say otherwise.
const (
	MaxPath     = 4096 // characters
	MaxFile     = 16 << 30
	MaxChunk    = 256 << 20
	MaxJSONFile = 32 << 20
	// MaxListed bounds the entries of one listing that is answered as a whole.
	MaxListed = 100_000
	// maxName bounds the name of an owner or a group.
	maxName = 256
)

// cleanPath checks the path in a field and returns it without what means nothing.
func cleanPath(field, p string) (string, error) {
	const remedy = "send an absolute path such as /home/agent/notes.txt"
	switch {
	case p == "":
		return "", fault.BadField(field, "is missing").Hint(remedy)
	case !utf8.ValidString(p):
		return "", fault.BadField(field, "is not UTF-8").Hint(remedy)
	case strings.IndexByte(p, 0) >= 0:
		return "", fault.BadField(field, "has a NUL byte").Hint(remedy)
	case !strings.HasPrefix(p, "/"):
		return "", fault.BadField(field, "is not absolute").Hint(remedy)
	case len(p) > MaxPath:
		return "", fault.BadField(field, "has more than %d characters", MaxPath).Hint("use a shorter path")
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", fault.BadField(field, "has a part that is ..").Hint("send the path that it leads to")
		}
	}
	return path.Clean(p), nil
}

func checkMode(m *uint32) error {
	if m != nil && *m > 0o7777 {
		return fault.BadField("mode", "is not between 0 and 07777").Hint(`send a number such as 420, or octal digits such as "0644"`)
	}
	return nil
}

func checkOwner(field, name string) error {
	if len(name) > maxName || strings.ContainsAny(name, ":\x00\n/") || !utf8.ValidString(name) {
		return fault.BadField(field, "is not a name").Hint("send a name or a number of the guest, or leave it out")
	}
	return nil
}

func checkOwners(owner, group string) error {
	if err := checkOwner("owner", owner); err != nil {
		return err
	}
	return checkOwner("group", group)
}

// checkWrite checks where content shall go and returns it with a clean path.
func checkWrite(w Write) (Write, error) {
	var err error
	if w.Path, err = cleanPath("path", w.Path); err != nil {
		return w, err
	}
	if w.Path == "/" {
		return w, notAFile()
	}
	if err := checkMode(w.Mode); err != nil {
		return w, err
	}
	if err := checkOwners(w.Owner, w.Group); err != nil {
		return w, err
	}
	if w.SHA256 != "" {
		if sum, err := hex.DecodeString(w.SHA256); err != nil || len(sum) != 32 {
			return w, fault.BadField("sha256", "is not 64 hexadecimal digits").Hint("send what sha256sum prints, or leave it out")
		}
		w.SHA256 = strings.ToLower(w.SHA256)
	}
	return w, nil
}

func notAFile() error {
	f := fault.BadField("path", "/ is a folder").Hint("name a regular file")
	f.Reason = api.ReasonNotAFile
	return f
}

func tooLarge(what string, limit int64) *fault.Error {
	f := &fault.Error{Code: api.CodePayloadTooLarge, Field: "body", Message: "body: " + what + " is too large"}
	return f.Hint("send at most %d bytes", limit)
}

func checksumMismatch() error {
	f := fault.BadField("sha256", "is not that of the content").Hint("compute it again, and send the content again")
	f.Reason = api.ReasonChecksumMismatch
	return f
}

func noUpload() error {
	return &fault.Error{
		Code: api.CodeNotFound, Reason: api.ReasonUploadNotFound, Message: "no upload of this vm has that id",
		Remedy: "begin a new one: POST fs/uploads",
	}
}

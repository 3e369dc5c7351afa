package network

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// The errors of this file name fields and never repeat what stands in them:
// nearly everything in a transform is secret.

func transformPath(at string, i int) string { return fmt.Sprintf("%stransform[%d]", at, i) }

func transformProtocol(t api.TLSTransform) api.TLSProtocol {
	switch {
	case t.Postgres != nil:
		return api.TLSPostgres
	case t.SMTP != nil:
		return api.TLSSMTP
	case t.SOCKS5 != nil:
		return api.TLSSOCKS5
	}
	return api.TLSHTTP
}

// checkTransform wants exactly one kind of change, well formed.
func checkTransform(path string, t api.TLSTransform) error {
	kinds := 0
	for _, set := range []bool{t.Headers != nil, t.JSONPatch != nil, t.Postgres != nil, t.SMTP != nil, t.SOCKS5 != nil, t.S3 != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return fault.BadField(path, "has %d kinds of changes instead of one", kinds).
			Hint("give one of headers, jsonPatch, postgres, smtp, socks5 and s3; use several transforms for several changes")
	}
	switch {
	case t.Headers != nil:
		return checkHeaders(path+".headers", t.Headers)
	case t.JSONPatch != nil:
		return checkPatch(path+".jsonPatch", t.JSONPatch)
	case t.Postgres != nil:
		return checkLogin(path+".postgres", t.Postgres.Username, t.Postgres.Password)
	case t.SMTP != nil:
		return checkLogin(path+".smtp", t.SMTP.Username, t.SMTP.Password)
	case t.SOCKS5 != nil:
		return checkLogin(path+".socks5", t.SOCKS5.Username, t.SOCKS5.Password)
	}
	return checkObjectStore(path+".s3", *t.S3)
}

func checkHeaders(path string, headers map[string]string) error {
	name := regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	for n, v := range headers {
		if !name.MatchString(n) {
			return fault.BadField(path, "%q is no name of a header", clip(n)).Hint("use letters, digits and hyphens")
		}
		if strings.ContainsAny(v, "\r\n\x00") {
			return fault.BadField(path, "the value of %q has a line break or a NUL", clip(n)).Hint("send one line")
		}
	}
	return nil
}

func checkLogin(path, username, password string) error {
	if username == "" {
		return fault.BadField(path+".username", "is required").Hint("name the account")
	}
	if password == "" {
		return fault.BadField(path+".password", "is required").Hint("give the password of the account")
	}
	return nil
}

func checkPatch(path string, patch []api.JSONPatchOperation) error {
	if len(patch) > MaxPatchOperations {
		return fault.BadField(path, "%d operations are more than %d", len(patch), MaxPatchOperations).Hint("use fewer")
	}
	for i, op := range patch {
		if err := checkOperation(fmt.Sprintf("%s[%d]", path, i), op); err != nil {
			return err
		}
	}
	text, err := json.Marshal(patch)
	if err != nil || len(text) > MaxPatchBytes {
		return fault.BadField(path, "is longer than %d bytes", MaxPatchBytes).Hint("use less")
	}
	return nil
}

func checkOperation(path string, op api.JSONPatchOperation) error {
	switch op.Op {
	case "add", "replace", "test":
		if op.Value == nil {
			return fault.BadField(path+".value", "is required").Hint("null is a value")
		}
	case "move", "copy":
		if op.From == nil || !isPointer(*op.From) {
			return fault.BadField(path+".from", "is no JSON pointer").Hint("write / and the name of a member")
		}
	case "remove":
	default:
		return fault.BadField(path+".op", "is not one of add, remove, replace, move, copy, test").Hint("use one of them")
	}
	if !isPointer(op.Path) {
		return fault.BadField(path+".path", "is no JSON pointer").Hint("write / and the name of a member")
	}
	return nil
}

func isPointer(s string) bool {
	return regexp.MustCompile(`^(/([^~]|~0|~1)*)?$`).MatchString(s)
}

func checkObjectStore(path string, s api.TLSObjectStore) error {
	if !regexp.MustCompile(`^[a-z0-9-]{1,63}$`).MatchString(s.Region) {
		return fault.BadField(path+".region", "is no region").Hint(`write something like "eu-central-1"`)
	}
	if s.Credentials == nil {
		return fault.BadField(path+".credentials", "is required").Hint("give accessKeyId and secretAccessKey")
	}
	if s.Scope == nil {
		return fault.BadField(path+".scope", "is required").Hint("give bucket, prefix and operations")
	}
	if err := checkStoreKeys(path+".credentials", *s.Credentials); err != nil {
		return err
	}
	return checkStoreScope(path+".scope", *s.Scope)
}

func checkStoreKeys(path string, c api.TLSObjectStoreCredentials) error {
	visible := regexp.MustCompile(`^[\x21-\x7e]+$`)
	const limit = 16 << 10
	if len(c.AccessKeyID) > limit || !regexp.MustCompile(`^[A-Za-z0-9]+$`).MatchString(c.AccessKeyID) {
		return fault.BadField(path+".accessKeyId", "is no key id").Hint("use letters and digits")
	}
	if len(c.SecretAccessKey) > limit || !visible.MatchString(c.SecretAccessKey) {
		return fault.BadField(path+".secretAccessKey", "is no key").Hint("use visible ASCII characters")
	}
	if c.SessionToken != nil && (len(*c.SessionToken) > limit || !visible.MatchString(*c.SessionToken)) {
		return fault.BadField(path+".sessionToken", "is no token").Hint("leave it out, or use visible ASCII characters")
	}
	return nil
}

func checkStoreScope(path string, s api.TLSObjectStoreScope) error {
	if !regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`).MatchString(s.Bucket) || strings.Contains(s.Bucket, "..") {
		return fault.BadField(path+".bucket", "is no name of a bucket").Hint("use 3 to 63 characters of a-z, 0-9, dots and hyphens")
	}
	if len(s.Prefix) > 1024 || strings.ContainsFunc(s.Prefix, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }) {
		return fault.BadField(path+".prefix", "is longer than 1024 bytes or has control characters").Hint(`use "" for the whole bucket`)
	}
	known := []string{
		"GetObject", "HeadObject", "PutObject", "DeleteObject", "ListObjects", "ListObjectsV2", "CreateMultipartUpload", "UploadPart",
		"ListParts", "CompleteMultipartUpload", "AbortMultipartUpload", "ListMultipartUploads",
	}
	seen := map[string]bool{}
	for _, op := range s.Operations {
		if !slices.Contains(known, op) || seen[op] {
			return fault.BadField(path+".operations", "%q is unknown or stands twice", clip(op)).Hint("use each of: %s", strings.Join(known, ", "))
		}
		seen[op] = true
	}
	if len(s.Operations) == 0 {
		return fault.BadField(path+".operations", "is empty").Hint("use some of: %s", strings.Join(known, ", "))
	}
	return nil
}

// checkTransformShape checks what each direction allows to be changed, and
// refuses secrets as long as they cannot be kept sealed.
func checkTransformShape(at string, r api.TLSRuleRequest, _ api.TLSProtocol, s shape) error {
	if s == internal && len(r.Transform) > 0 {
		return fault.BadField(at+"transform", "a rule between VMs changes nothing").Hint("leave it out")
	}
	patches := 0
	for i, t := range r.Transform {
		path := transformPath(at, i)
		outward := t.JSONPatch != nil || t.Postgres != nil || t.SMTP != nil || t.SOCKS5 != nil || t.S3 != nil
		switch {
		case outward && s != egress:
			return fault.BadField(path, "is only for rules that lead from a VM to the Internet").
				Hint("pointed inward it would log every client in")
		case t.S3 != nil && (len(r.Transform) > 1 || r.Match != nil || strings.Contains(r.Domain, "*")):
			return fault.BadField(path, "s3 stands alone, for one domain and without match").Hint("use a rule of its own")
		case t.JSONPatch != nil:
			patches++
		}
	}
	if patches > 1 {
		return fault.BadField(at+"transform", "has %d JSON patches and may have one", patches).Hint("join them")
	}
	return checkSealing(at, r.Transform)
}

func checkSealing(at string, list []api.TLSTransform) error {
	for i, t := range list {
		if !secret(t) {
			continue
		}
		f := &fault.Error{
			Code: api.CodeUnavailable, Reason: api.ReasonSealingMissing, Field: transformPath(at, i),
			Message: transformPath(at, i) + ": sealing not configured: secrets cannot be kept safely by this version, so none are accepted",
		}
		return f.Hint("leave the transform out")
	}
	return nil
}

// secret reports whether a transform has anything that must not be kept in
// clear: all have but a patch that only removes or rearranges.
func secret(t api.TLSTransform) bool {
	if t.JSONPatch == nil {
		return true
	}
	return slices.ContainsFunc(t.JSONPatch, func(op api.JSONPatchOperation) bool { return op.Value != nil })
}

func containsMailbox(domain string) bool { return strings.Contains(domain, "@") }

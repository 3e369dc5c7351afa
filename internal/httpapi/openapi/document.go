package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/httpapi"
	"github.com/pandovm/pando/internal/operation"
)

const about = `Pando gives programs real computers: full Linux VMs that are created from snapshots and forked while they run.

Errors are always an Error object; its code is stable and has one HTTP status. An id in a path may be a slug. ` +
	`The header X-Request-Id is echoed, or made up, on every answer and names the request in the daemon's log. ` +
	`With the header x-freestyle-background-after-secs, a request that lasts longer than that many seconds is answered 202 and goes on; ` +
	`its answer is fetched from /v5/background-requests/{id}. ` +
	`With an Idempotency-Key, a request that makes things can be repeated: it is carried out once and answered alike for 24 hours.`

// Document makes the document, ready to be served: indented JSON with a final
// newline. The comments are those of package api.
func Document(ops []httpapi.Operation, c *Comments) ([]byte, error) {
	s := &schemas{comments: c, limits: limits(), done: map[string]schema{}, used: map[string]bool{}}
	paths := map[string]map[string]any{}
	ids := map[string]bool{}
	for _, op := range ops {
		if ids[op.ID] || op.ID == "" || op.Summary == "" {
			return nil, fmt.Errorf("%s %s: the operation has no unique id or no summary", op.Method, op.Path)
		}
		ids[op.ID] = true
		if paths[op.Path] == nil {
			paths[op.Path] = map[string]any{}
		}
		paths[op.Path][strings.ToLower(op.Method)] = s.operation(op)
	}
	s.of(reflect.TypeFor[api.Error]())
	s.of(reflect.TypeFor[api.BackgroundRequest]())
	s.of(reflect.TypeFor[api.PTYFrame]())
	if err := s.check(); err != nil {
		return nil, err
	}
	return encode(map[string]any{
		"openapi":  "3.1.0",
		"info":     map[string]any{"title": "Pando", "version": "v5", "description": about, "license": map[string]any{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"paths":    paths,
		"security": []any{map[string]any{"apiKey": []string{}}},
		"x-limits": overview(),
		"components": map[string]any{
			"schemas":         s.done,
			"parameters":      headerParameters(),
			"responses":       map[string]any{"Accepted": accepted()},
			"securitySchemes": map[string]any{"apiKey": map[string]any{"type": "http", "scheme": "bearer"}},
		},
	})
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, errors.Join(errors.New("encode document"), err)
	}
	return out.Bytes(), nil
}

func (s *schemas) operation(op httpapi.Operation) map[string]any {
	out := map[string]any{
		"operationId": op.ID, "summary": op.Summary, "tags": []string{tag(op.Path)},
		"responses": s.responses(op),
	}
	if op.Description != "" {
		out["description"] = op.Description
	}
	if op.Keyless {
		out["security"] = []any{}
	}
	if p := parameters(op); len(p) > 0 {
		out["parameters"] = p
	}
	if op.Request != nil || op.Takes != "" {
		out["requestBody"] = s.requestBody(op)
	}
	return out
}

// tag groups the operations: vms, snapshots, images, or what has no version.
func tag(path string) string {
	if rest, ok := strings.CutPrefix(path, "/v5/"); ok {
		group, _, _ := strings.Cut(rest, "/")
		return group
	}
	return "daemon"
}

// headerParameters are the headers that many operations take.
func headerParameters() map[string]any {
	return map[string]any{
		"backgroundAfter": map[string]any{
			"name": "x-freestyle-background-after-secs", "in": "header",
			"description": "Answer 202 if the work lasts longer than this many seconds, and go on with it.",
			"schema":      schema{"type": "integer", "minimum": 0, "maximum": int64(operation.MaxBackgroundAfter / time.Second)},
		},
		"idempotencyKey": map[string]any{
			"name": "Idempotency-Key", "in": "header",
			"description": "Names the request, so that repeating it makes nothing twice and gets the same answer for 24 hours. " +
				"A repetition that comes while the first is under way waits for it. Another request with the same key is a CONFLICT. " +
				"Refusals with 409 and 429, and failures with 5xx, are not remembered. A replayed answer has the header Idempotency-Replayed.",
			"schema": schema{"type": "string", "minLength": 1, "maxLength": operation.MaxKeyLength, "pattern": "^[!-~]+$"},
		},
	}
}

// accepted is the answer to a request that goes on without its client.
func accepted() map[string]any {
	return map[string]any{
		"description": "The work goes on; fetch its answer later.",
		"headers": map[string]any{"x-freestyle-background-request-id": map[string]any{
			"description": "The id of the background request.", "schema": schema{"type": "string"},
		}},
		"content": jsonContent(schema{"$ref": "#/components/schemas/BackgroundRequest"}),
	}
}

func parameters(op httpapi.Operation) []any {
	var list []any
	if op.JSON {
		list = append(list, map[string]any{"$ref": "#/components/parameters/backgroundAfter"})
	}
	if op.Once {
		list = append(list, map[string]any{"$ref": "#/components/parameters/idempotencyKey"})
	}
	if strings.Contains(op.Path, "{id}") {
		list = append(list, map[string]any{
			"name": "id", "in": "path", "required": true, "schema": schema{"type": "string"},
			"description": "An id or a slug, escaped to one path segment.",
		})
	}
	if strings.Contains(op.Path, "{sub}") {
		list = append(list, map[string]any{
			"name": "sub", "in": "path", "required": true, "schema": schema{"type": "string"},
			"description": "An id or a name within the object, escaped to one path segment.",
		})
	}
	for _, p := range op.Query {
		sc := schema{"type": p.Type}
		if len(p.Values) > 0 {
			sc["enum"] = p.Values
		}
		if p.Type == "integer" {
			sc["minimum"] = p.Minimum
		}
		list = append(list, map[string]any{"name": p.Name, "in": "query", "description": p.Description, "schema": sc})
	}
	return list
}

func (s *schemas) requestBody(op httpapi.Operation) map[string]any {
	if op.Request == nil {
		return map[string]any{"required": true, "content": map[string]any{op.Takes: map[string]any{}}}
	}
	sc := s.of(op.Request)
	if component, ok := s.done[op.Request.Name()]; ok {
		component["additionalProperties"] = op.Lenient
		if len(op.Unsupported) > 0 {
			component["x-unsupported"] = op.Unsupported
		}
	}
	component := s.done[op.Request.Name()]
	_, required := component["required"]
	content := map[string]any{"application/json": map[string]any{"schema": sc, "x-max-bytes": op.MaxBody}}
	if op.Takes != "" {
		content[op.Takes] = map[string]any{}
	}
	return map[string]any{"required": required, "content": content}
}

func (s *schemas) responses(op httpapi.Operation) map[string]any {
	success := map[string]any{"description": http.StatusText(op.Status)}
	switch {
	case op.Response != nil && op.Gives != "":
		success["content"] = map[string]any{op.Gives: map[string]any{"schema": s.of(op.Response)}}
	case op.Response != nil:
		success["content"] = jsonContent(s.of(op.Response))
	case op.Gives != "":
		success["content"] = map[string]any{op.Gives: map[string]any{}}
	}
	out := map[string]any{strconv.Itoa(op.Status): success}
	if op.JSON {
		out["202"] = map[string]any{"$ref": "#/components/responses/Accepted"}
	}
	byStatus := map[int][]string{}
	for _, code := range errorCodes(op) {
		status := httpapi.StatusOf(code)
		byStatus[status] = append(byStatus[status], string(code))
	}
	for status, codes := range byStatus {
		out[strconv.Itoa(status)] = map[string]any{
			"description": strings.Join(codes, " or "), "x-codes": codes,
			"content": jsonContent(schema{"$ref": "#/components/schemas/Error"}),
		}
	}
	return out
}

// errorCodes are the operation's own codes and those that follow from its
// shape.
func errorCodes(op httpapi.Operation) []api.Code {
	codes := slices.Clone(op.Errors)
	codes = append(codes, api.CodeBadRequest, api.CodeInternal)
	if op.Once {
		codes = append(codes, api.CodeConflict)
	}
	if !op.Keyless {
		codes = append(codes, api.CodeMissingCredentials, api.CodeInvalidAPIKey)
	}
	if op.Request != nil {
		codes = append(codes, api.CodePayloadTooLarge, api.CodeUnavailable)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

func jsonContent(s schema) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": s}}
}

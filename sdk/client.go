package pando

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pandovm/pando/api"
)

// DefaultURL is where a daemon listens unless it is told otherwise.
const DefaultURL = "http://127.0.0.1:7878"

// maxResponse bounds what the client reads of one answer, so that a peer that
// is not a Pando daemon cannot exhaust the caller's memory.
const maxResponse = 256 << 20

// Options says where the daemon is and who is asking.
type Options struct {
	// BaseURL is the daemon's address; empty means DefaultURL. A path in it is
	// kept as a prefix.
	BaseURL string
	// APIKey is sent as a bearer token; empty sends none, which is enough for
	// Status.
	APIKey string
	// HTTPClient carries the requests; nil means a client without a timeout,
	// because a command may run for hours: bound each call with its context.
	HTTPClient *http.Client
}

// Client calls one daemon. It is safe for concurrent use.
type Client struct {
	// VMs, Snapshots, Images, Firewall and TLS group the calls by what they act on.
	VMs       *VMs
	Snapshots *Snapshots
	Images    *Images
	Firewall  *Firewall
	TLS       *TLS

	base string
	key  string
	http *http.Client
	// patience is the waits before further tries of calls that can be repeated.
	patience []time.Duration
}

// New returns a client. It does not contact the daemon; it fails if the base
// URL is not an http or https URL.
func New(o Options) (*Client, error) {
	if o.BaseURL == "" {
		o.BaseURL = DefaultURL
	}
	base, err := url.Parse(o.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("parse base url: %w", err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("base url %q: want something like %s", o.BaseURL, DefaultURL)
	}
	if o.HTTPClient == nil {
		o.HTTPClient = &http.Client{}
	}
	c := &Client{base: strings.TrimRight(o.BaseURL, "/"), key: o.APIKey, http: o.HTTPClient, patience: patience()}
	c.VMs, c.Snapshots, c.Images = &VMs{c}, &Snapshots{c}, &Images{c}
	c.Firewall, c.TLS = &Firewall{c}, &TLS{c}
	return c, nil
}

// BaseURL returns the address that the client calls, without a trailing slash.
func (c *Client) BaseURL() string { return c.base }

// Status asks the daemon how it is. It needs no key.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	return call[api.Status](ctx, c, http.MethodGet, "/status", nil)
}

// Limits lists every limit and default of the daemon.
func (c *Client) Limits(ctx context.Context) (api.LimitList, error) {
	return call[api.LimitList](ctx, c, http.MethodGet, "/v5/limits", nil)
}

// call makes one call and decodes its answer.
func call[T any](ctx context.Context, c *Client, method, path string, in any) (T, error) {
	var out T
	body, err := c.send(ctx, method, path, in)
	if err != nil {
		return out, err
	}
	if _, ok := any(out).(nothing); ok {
		return out, nil
	}
	err = c.decode(method, path, body, &out)
	return out, err
}

// callOn is call for the object that ref names, with the path segments that
// follow it.
func callOn[T any](ctx context.Context, c *Client, method, kind, ref, verb string, in any) (T, error) {
	path, err := objectPath(kind, ref, verb)
	if err != nil {
		var none T
		return none, err
	}
	return call[T](ctx, c, method, path, in)
}

// nothing is the answer of calls whose answer does not matter.
type nothing struct{}

// send sends in as JSON (nil sends no body) and returns the body of a 2xx
// answer.
func (c *Client) send(ctx context.Context, method, path string, in any) ([]byte, error) {
	req, err := c.request(ctx, method, path, in)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.transportError(ctx, method, path, err)
	}
	defer func() { _ = resp.Body.Close() }() // the answer is already read: a failure changes nothing
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return nil, c.transportError(ctx, method, path, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, statusError(method, path, resp, body)
	}
	return body, nil
}

func (c *Client) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode request %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make request %s %s: %w", method, path, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key, ok := ctx.Value(idempotencyKey{}).(string); ok && method == http.MethodPost {
		req.Header.Set(idempotencyHeader, key)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	return req, nil
}

func (c *Client) decode(method, path string, body []byte, out any) error {
	if len(body) > maxResponse {
		return c.foreignAnswer(method, path, fmt.Errorf("the answer is longer than %d bytes", maxResponse))
	}
	if err := json.Unmarshal(body, out); err != nil {
		return c.foreignAnswer(method, path, err)
	}
	return nil
}

// objectPath escapes ref, so that a name with a slash stays one segment. It
// refuses refs that servers and proxies would resolve to another path.
func objectPath(kind, ref, verb string) (string, error) {
	if ref == "" || ref == "." || ref == ".." {
		return "", &api.Error{
			Code: api.CodeBadRequest, Field: "ref",
			Message: fmt.Sprintf("%q is not the id or slug of one of the %s", ref, kind),
		}
	}
	path := "/v5/" + kind + "/" + url.PathEscape(ref)
	if verb != "" {
		path += "/" + verb
	}
	return path, nil
}

// withQuery appends the values, if there are any.
func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

package pando_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"unicode/utf8"

	"github.com/pandovm/pando/api"
	pando "github.com/pandovm/pando/sdk"
)

// transport answers every request.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Whatever answers, the caller gets an error it can use and no panic.
func FuzzAnswers(f *testing.F) {
	f.Add(200, []byte(`{"id":"vm-1","state":"running","createdAt":"2026-11-30T12:00:00Z"}`))
	f.Add(409, []byte(`{"code":"CONFLICT","message":"slug is taken","needed":1}`))
	f.Add(502, []byte("<html>"))
	f.Add(500, []byte("\xff\xfe one\ntwo"))
	f.Add(204, []byte{})
	f.Add(418, []byte(`{"code":""}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 || (status >= 300 && status < 400) {
			return // net/http deals with these
		}
		c, err := pando.New(pando.Options{HTTPClient: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: status, Status: http.StatusText(status), Header: http.Header{},
				Body: io.NopCloser(bytes.NewReader(body)), Request: r,
			}, nil
		})}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.VMs.Get(t.Context(), "vm-1")
		if status >= 300 {
			e, ok := errors.AsType[*api.Error](err)
			if !ok || e.Code == "" || e.Message == "" || !utf8.ValidString(e.Message) {
				t.Errorf("status %d: error = %#v", status, err)
			}
			return
		}
		if _, ok := errors.AsType[*pando.TransportError](err); err != nil && !ok {
			t.Errorf("status %d: error = %#v", status, err)
		}
	})
}

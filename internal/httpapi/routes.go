package httpapi

import (
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/pandovm/pando/api"
	"github.com/pandovm/pando/internal/fault"
)

// Limits on request bodies, in bytes. The one for exec has room for the largest
// stdin in base64 beside the command.
const (
	MaxBodyBytes     = 1 << 20
	MaxExecBodyBytes = 4 << 20
)

// Operation describes one route: what it is called, what it takes and what it
// answers. The router obeys it and the OpenAPI document is made from it.
type Operation struct {
	Method, Path string
	// ID is unique; Summary is one line.
	ID, Summary, Description string
	// Keyless routes answer without an API key.
	Keyless bool
	Query   []Parameter
	// Request is the type of the body, nil if the route takes none.
	Request reflect.Type
	// JSON routes are answered from one decoded request, so a client may ask for
	// the answer later. Once routes take an Idempotency-Key too.
	JSON, Once bool
	// Lenient bodies may have fields that nobody knows.
	Lenient bool
	// Unsupported are fields of the reference that this version cannot honour:
	// they are accepted only with a value that means "none".
	Unsupported []string
	MaxBody     int64
	// Takes and Gives are the media types of a body and an answer that are no
	// JSON documents, or may be something else than one.
	Takes, Gives string
	// Response is the type of a successful answer, nil if it has no body.
	Response reflect.Type
	Status   int
	// Errors are the codes that this route adds to those of every route.
	Errors []api.Code
}

// Parameter describes one query parameter.
type Parameter struct {
	Name, Description string
	// Type is the JSON type: "string" or "integer".
	Type string
	// Values are the only ones accepted, if there are any.
	Values []string
	// Minimum is the least integer accepted; Large ones may have 64 bits.
	Minimum int64
	Large   bool
}

// route is an operation and what answers it: decode reads the request and
// returns the work, or handler does everything itself.
type route struct {
	Operation
	decode  func(w http.ResponseWriter, r *http.Request) (work, error)
	handler handlerFunc
}

// Operations lists every route of the API.
func Operations() []Operation {
	var ops []Operation
	for _, r := range (&server{}).routes() {
		ops = append(ops, r.Operation)
	}
	return ops
}

func (s *server) routes() []route {
	return slices.Concat(s.systemRoutes(), s.backgroundRoutes(), s.limitRoutes(), s.networkRoutes(), s.tlsRoutes(),
		s.vmRoutes(), s.lifecycleRoutes(), s.execRoutes(), s.terminalRoutes(), s.processRoutes(),
		s.snapshotRoutes(), s.imageRoutes(), s.statsRoutes(), s.fileRoutes(), s.fileStreamRoutes(), s.uploadRoutes(), s.agentRoutes())
}

// mount fills the mux. A path without its method is a handler of its own, so
// that a wrong method is answered in JSON like everything else.
func (s *server) mount(routes []route) {
	methods := map[string][]string{}
	for _, r := range routes {
		s.mux.Handle(r.Method+" "+r.Path, s.guard(r))
		methods[r.Path] = append(methods[r.Path], r.Method)
	}
	for p, allowed := range methods {
		s.mux.Handle(p, s.refuse(wrongMethod(allowed), allowed))
	}
	s.mux.Handle("/", s.refuse(noRoute(), nil))
}

// serve routes the request. The mux would answer a path that is not clean with
// a redirect to one that is; nobody needs it and its body is not JSON.
func (s *server) serve(e *exchange, r *http.Request) {
	escaped := r.URL.EscapedPath()
	if r.RequestURI == "*" || path.Clean("/"+escaped) != strings.TrimSuffix(escaped, "/") && escaped != "/" {
		s.fail(e, noRoute())
		return
	}
	s.mux.ServeHTTP(e, r)
}

func (s *server) guard(rt route) http.Handler {
	return s.handler(func(e *exchange, r *http.Request) error {
		e.route = rt.Path
		if !rt.Keyless {
			if err := s.authenticate(r); err != nil {
				return err
			}
		}
		if rt.decode != nil {
			return s.answerJSON(e, r, rt)
		}
		return rt.handler(e, r)
	})
}

func (s *server) refuse(f *fault.Error, allowed []string) http.Handler {
	return s.handler(func(e *exchange, _ *http.Request) error {
		if allowed != nil {
			e.Header().Set("Allow", strings.Join(allowed, ", "))
		}
		return f
	})
}

// handler makes an http.Handler for the mux.
func (s *server) handler(f func(*exchange, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, _ := w.(*exchange) // ServeHTTP gave it to the mux.
		if err := f(e, r); err != nil {
			s.fail(e, err)
		}
	})
}

func noRoute() *fault.Error {
	return &fault.Error{
		Code: api.CodeRouteNotFound, Message: "the API has no such path",
		Remedy: "GET /openapi.json lists the paths",
	}
}

func wrongMethod(allowed []string) *fault.Error {
	return &fault.Error{
		Code: api.CodeMethodNotAllowed, Message: "this path does not take that method",
		Remedy: "use " + strings.Join(allowed, " or "),
	}
}

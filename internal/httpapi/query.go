package httpapi

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pandovm/pando/internal/fault"
)

// query is the decoded query string: each name is known and stands once.
type query map[string]string

// parseQuery refuses names that the route does not know: a filter with a
// misspelt name would select everything.
func parseQuery(raw string, known []Parameter) (query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fault.BadField("query", "cannot be decoded").Hint("escape special characters with %%")
	}
	q := query{}
	for name, given := range values {
		i := slices.IndexFunc(known, func(p Parameter) bool { return p.Name == name })
		if i < 0 {
			return nil, unknownParameter(name, known)
		}
		if len(given) > 1 {
			return nil, fault.BadField(name, "is given %d times", len(given)).Hint("give it once")
		}
		if err := known[i].check(given[0]); err != nil {
			return nil, err
		}
		q[name] = given[0]
	}
	return q, nil
}

func unknownParameter(name string, known []Parameter) error {
	f := fault.BadField(clip(name), "this route has no such query parameter")
	if len(known) == 0 {
		return f.Hint("leave it out: the route takes none")
	}
	var names []string
	for _, p := range known {
		names = append(names, p.Name)
	}
	return f.Hint("its parameters are: %s", strings.Join(names, ", "))
}

func (p Parameter) check(value string) error {
	if len(p.Values) > 0 && !slices.Contains(p.Values, value) {
		return fault.BadField(p.Name, "%q is not one of its values", clip(value)).Hint("use one of: %s", strings.Join(p.Values, ", "))
	}
	if p.Type != "integer" {
		return nil
	}
	bits := 32
	if p.Large {
		bits = 64
	}
	if n, err := strconv.ParseInt(value, 10, bits); err != nil || n < p.Minimum {
		return fault.BadField(p.Name, "%q is not a whole number of at least %d", clip(value), p.Minimum).Hint("use a number such as %d", p.Minimum+20)
	}
	return nil
}

// number returns an integer parameter, 0 if it is absent. parseQuery has
// checked it.
func (q query) number(name string) int {
	n, _ := strconv.Atoi(q[name])
	return n
}

// size returns a parameter that counts bytes or pieces, absent as given.
func (q query) size(name string, absent int64) int64 {
	n, err := strconv.ParseInt(q[name], 10, 64)
	if err != nil {
		return absent
	}
	return n
}

// labels reads k:v,k:v. A value may hold colons.
func (q query) labels(name string) (map[string]string, error) {
	text, given := q[name]
	if !given {
		return nil, nil
	}
	labels := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, ":")
		if !ok || key == "" {
			return nil, fault.BadField(name, "%q is not key:value", clip(pair)).Hint("write %s=key:value,key:value", name)
		}
		labels[key] = value
	}
	return labels, nil
}

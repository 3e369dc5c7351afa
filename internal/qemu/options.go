package qemu

import (
	"strconv"
	"strings"
)

// options builds the value of one QEMU option: "head,key=value,key=value".
type options struct{ b strings.Builder }

func option(head string) *options {
	o := &options{}
	o.b.WriteString(head)
	return o
}

// set adds key=value. QEMU reads a doubled comma as a comma, so no value can
// smuggle in another key.
func (o *options) set(key, value string) *options {
	if o.b.Len() > 0 {
		o.b.WriteByte(',')
	}
	o.b.WriteString(key)
	o.b.WriteByte('=')
	o.b.WriteString(strings.ReplaceAll(value, ",", ",,"))
	return o
}

func (o *options) on(key string) *options { return o.set(key, "on") }

func (o *options) off(key string) *options { return o.set(key, "off") }

func (o *options) number(key string, n int) *options { return o.set(key, strconv.Itoa(n)) }

func (o *options) String() string { return o.b.String() }

// Package daemon wires everything into one process: it is the only place that
// knows all of the drivers, the domain and the transports.
//
// It owns no rules. Only cmd/pando imports it.
package daemon

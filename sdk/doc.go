// Package pando is the Go client of Pando's /v5 HTTP API.
//
// A [Client] is made with [New] and is safe for concurrent use. Its fields
// group the calls by what they act on:
//
//	client, err := pando.New(pando.Options{APIKey: key})
//	vm, err := client.VMs.Create(ctx, api.CreateVMRequest{})
//	forks, err := client.VMs.Fork(ctx, vm.ID, api.ForkVMRequest{Count: new(3)})
//	out, err := client.VMs.Exec(ctx, vm.ID, api.ExecRequest{Command: "uname -a"})
//
// Wherever a call takes a ref, an id or a slug will do; for snapshots also the
// name of a base image such as "pando/debian".
//
// # Errors
//
// An answer outside 2xx is an [*api.Error], found with errors.As; the
// [*StatusError] around it holds the HTTP status. When no usable answer came
// the error is a [*TransportError]. Both carry a remedy where there is one. A
// cancelled or expired context is returned wrapped, for errors.Is. The client
// repeats nothing by itself.
//
// The package imports api and the standard library only, and anything may
// import it.
package pando

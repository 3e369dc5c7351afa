// Package e2e tests the product from outside: the built daemon, real VMs, the
// SDK and the command line. Nothing in it is skipped: a host on which VMs
// cannot run fails the tests.
package e2e

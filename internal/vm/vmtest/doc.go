// Package vmtest tests implementations of vm.Node and offers one that needs no
// host: a Fake whose guests understand three commands. The fake is honest
// because it passes the same conformance suite as the real node.
//
// Only tests import it.
package vmtest

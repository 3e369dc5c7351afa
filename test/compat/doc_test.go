// Package compat runs the reference client, the npm package "freestyle", SDK
// and command line as published, against a real daemon with real VMs, and
// checks what comes of every call.
package compat

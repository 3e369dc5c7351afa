// Package agentbin carries the guest agent inside the pando binary, so that
// images can be built wherever pando runs.
//
// The agent is put into the folder files by "make build" and is not kept in
// the repository; without it the package still compiles and Read fails. It
// imports the standard library only; the wiring imports it.
package agentbin

import (
	"embed"
	"fmt"
)

// The pattern names the folder, not the agent, so that a checkout compiles
// before its first make.
//
//go:embed all:files
var files embed.FS

// Read returns the agent, a static Linux executable.
func Read() ([]byte, error) {
	agent, err := files.ReadFile("files/pando-agent")
	if err != nil {
		return nil, fmt.Errorf("read embedded agent: this binary was built without it, build it with make: %w", err)
	}
	return agent, nil
}

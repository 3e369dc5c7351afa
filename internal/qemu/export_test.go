package qemu

// ParseMachineType is how Probe reads the list of machine types.
func ParseMachineType(help string) (string, error) { return parseMachineType(help) }

// Package node owns what one host does for its VMs: their processes, memory,
// disks and guests, composed of the drivers (qemu, jail, memory, disk, layer,
// guest). It implements vm.Node and image.Baker.
//
// On disk a node is three folders, and they are the truth about what exists:
//
//	layers/               immutable files, held by the VMs and snapshots that need them
//	snapshots/<id>.json   one manifest per saved machine, written once it is durable
//	vms/<id>/record.json  one record per VM; vms/<id>/run/ is what its QEMU may touch
//
// Invariants: a layer that a manifest or a record names is held, so it exists;
// a record names a process only while that process may be alive; a VM is
// handed out only after its guest confirmed the epoch; an operation that fails
// leaves the VM as it was, or says so. Operations on one VM are ordered by its
// mutex; operations on different VMs run side by side.
//
// Only the wiring (daemon, cmd) imports this package.
package node

package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ResizeDisk makes the disk, whose uppermost node is node, as large as it says. A
// disk of that size stays as it is. The guest is told by the device.
func (m *Monitor) ResizeDisk(ctx context.Context, node string, bytes int64) error {
	return m.client.Execute(ctx, "block_resize", struct {
		Node string `json:"node-name"`
		Size int64  `json:"size"`
	}{node, bytes}, nil)
}

// cpuSlot is a place for a virtual CPU. Props are where it is, in the form in
// which device_add takes them.
type cpuSlot struct {
	Type  string         `json:"type"`
	Props map[string]int `json:"props"`
	// Path is empty where there is no CPU yet.
	Path string `json:"qom-path"`
}

// CPUs returns how many virtual CPUs the machine has.
func (m *Monitor) CPUs(ctx context.Context) (int, error) {
	slots, err := m.cpuSlots(ctx)
	if err != nil {
		return 0, err
	}
	return len(slots) - len(freeSlots(slots)), nil
}

// AddCPUs adds virtual CPUs until the machine has count of them, in the order in
// which a start with count CPUs has them.
func (m *Monitor) AddCPUs(ctx context.Context, count int) error {
	slots, err := m.cpuSlots(ctx)
	if err != nil {
		return err
	}
	free := freeSlots(slots)
	have := len(slots) - len(free)
	if count > len(slots) {
		return fmt.Errorf("the machine has places for %d cpus, not for %d", len(slots), count)
	}
	for i := range max(count-have, 0) {
		device := map[string]any{"driver": free[i].Type, "id": fmt.Sprintf("cpu%d", have+i)}
		for key, value := range free[i].Props {
			device[key] = value
		}
		if err := m.client.Execute(ctx, "device_add", device, nil); err != nil {
			return fmt.Errorf("add cpu %d: %w", have+i, err)
		}
	}
	return nil
}

// cpuSlots lists the places in the order of the CPUs' numbers.
func (m *Monitor) cpuSlots(ctx context.Context) ([]cpuSlot, error) {
	var slots []cpuSlot
	if err := m.client.Execute(ctx, "query-hotpluggable-cpus", nil, &slots); err != nil {
		return nil, err
	}
	slices.SortFunc(slots, func(a, b cpuSlot) int {
		for _, key := range []string{"node-id", "socket-id", "die-id", "core-id", "thread-id"} {
			if c := cmp.Compare(a.Props[key], b.Props[key]); c != 0 {
				return c
			}
		}
		return 0
	})
	return slots, nil
}

func freeSlots(slots []cpuSlot) []cpuSlot {
	return slices.DeleteFunc(slices.Clone(slots), func(s cpuSlot) bool { return s.Path != "" })
}

// AddedMiB returns how much memory was added to the machine since its boot, or is
// being taken by the guest, and false if it has no device for that.
func (m *Monitor) AddedMiB(ctx context.Context) (int, bool, error) {
	devices, err := m.memoryDevices(ctx)
	if err != nil || len(devices) == 0 {
		return 0, false, err
	}
	return int(devices[0].Data.Requested >> 20), true, nil
}

// AddMemory gives the guest mib MiB beside the memory that it booted with, and
// returns when the guest has taken it, or why not when ctx ends. q is the machine
// as it was started, or as it would be started now.
func (m *Monitor) AddMemory(ctx context.Context, q Machine, mib int) error {
	_, there, err := m.AddedMiB(ctx)
	switch {
	case err != nil:
	case there:
		err = m.client.Execute(ctx, "qom-set", struct {
			Path     string `json:"path"`
			Property string `json:"property"`
			Value    int64  `json:"value"`
		}{"/machine/peripheral/" + addedDevice, requestedSize, int64(mib) << 20}, nil)
	default:
		err = m.plugMemory(ctx, q.addedMemory(), mib)
	}
	if err == nil {
		err = m.memoryTaken(ctx)
	}
	if err != nil {
		return fmt.Errorf("add memory: %w", err)
	}
	return nil
}

// requestedSize is the device's property of how much memory the guest shall have.
const requestedSize = "requested-size"

// plugMemory gives a machine that runs the device that it lacks, with mib MiB in
// it from the start: a device without memory would not be told from none.
func (m *Monitor) plugMemory(ctx context.Context, p addedMemory, mib int) error {
	backend := map[string]any{
		"qom-type": "memory-backend-file", "id": addedObject, "size": int64(p.mib) << 20, "mem-path": p.path,
		"share": true, "prealloc": false, "merge": false, "dump": false,
	}
	if err := m.client.Execute(ctx, "object-add", backend, nil); err != nil {
		return err
	}
	device := map[string]any{
		"driver": "virtio-mem-pci", "id": addedDevice, "memdev": addedObject, "addr": addedSlot, requestedSize: int64(mib) << 20,
	}
	err := m.client.Execute(ctx, "device_add", device, nil)
	if err != nil {
		// Without the device the room is of no use, and in the way of another try.
		err = errors.Join(err, m.client.Execute(ctx, "object-del", map[string]any{"id": addedObject}, nil))
	}
	return err
}

// memoryTaken waits until the guest has taken all memory that it was given.
func (m *Monitor) memoryTaken(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		devices, err := m.memoryDevices(ctx)
		if err != nil {
			return err
		}
		if len(devices) == 0 {
			return errors.New("the device is gone")
		}
		d := devices[0].Data
		if d.Size >= d.Requested {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the guest has taken %d of %d MiB: %w", d.Size>>20, d.Requested>>20, context.Cause(ctx))
		}
	}
}

type memoryDevice struct {
	Data struct {
		ID        string `json:"id"`
		Size      int64  `json:"size"`
		Requested int64  `json:"requested-size"`
	} `json:"data"`
}

// memoryDevices lists the device for added memory, if it is there.
func (m *Monitor) memoryDevices(ctx context.Context) ([]memoryDevice, error) {
	var devices []memoryDevice
	if err := m.client.Execute(ctx, "query-memory-devices", nil, &devices); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(devices, func(d memoryDevice) bool { return d.Data.ID != addedDevice }), nil
}

// AddedReach is how far behind the memory of the boot the guest may use what it
// was given, in MiB: the device lets it take pieces that lie further up than the
// sum of them, so that it can choose. It is 0 if nothing was added.
func AddedReach(bootMiB, addedMiB int) int {
	const choice = 256 // VIRTIO_MEM_USABLE_EXTENT
	if addedMiB == 0 {
		return 0
	}
	return min(addedMiB+choice, MaxMemoryMiB-bootMiB)
}

// DiskBytes returns the size of the disk that the node is; 0 if there is no such node.
func (m *Monitor) DiskBytes(ctx context.Context, node string) (int64, error) {
	var nodes []struct {
		Name  string `json:"node-name"`
		Image struct {
			Size int64 `json:"virtual-size"`
		} `json:"image"`
	}
	flat := map[string]any{"flat": true}
	if err := m.client.Execute(ctx, "query-named-block-nodes", flat, &nodes); err != nil {
		return 0, err
	}
	for _, n := range nodes {
		if n.Name == node {
			return n.Image.Size, nil
		}
	}
	return 0, nil
}

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pandovm/pando/internal/qemu/qmp"
)

// BlockNode is one qcow2 file of the disk's chain as QEMU has it open.
type BlockNode struct {
	// Name is the node's name; QEMU makes one up ("#block123") for backing
	// files that it opened by itself.
	Name string
	// File is the path under which QEMU opened it.
	File string
}

type blockFile struct {
	Driver   string `json:"driver"`
	Filename string `json:"filename"`
	AIO      string `json:"aio"`
	Discard  string `json:"discard"`
}

// overlayNode is a qcow2 file whose backing file QEMU must not open by itself.
type overlayNode struct {
	Driver       string    `json:"driver"`
	NodeName     string    `json:"node-name"`
	File         blockFile `json:"file"`
	Backing      *string   `json:"backing"`
	Discard      string    `json:"discard"`
	DetectZeroes string    `json:"detect-zeroes"`
}

// AddOverlay opens the qcow2 file at path as a node on its own, ready for
// SwitchOverlay. It opens and locks files, so do it before the pause.
func (m *Monitor) AddOverlay(ctx context.Context, path, node string) error {
	return m.client.Execute(ctx, "blockdev-add", overlayNode{
		Driver: "qcow2", NodeName: node, Discard: "unmap", DetectZeroes: "off",
		File: blockFile{Driver: "file", Filename: path, AIO: "threads", Discard: "unmap"},
	}, nil)
}

// RemoveOverlay closes a node that no disk uses, for example after an
// AddOverlay whose pause never came.
func (m *Monitor) RemoveOverlay(ctx context.Context, node string) error {
	return m.client.Execute(ctx, "blockdev-del", struct {
		NodeName string `json:"node-name"`
	}{node}, nil)
}

// SwitchOverlay puts node to on top of node from, which becomes read-only at
// that moment: from's file is complete and may be shared once the machine was
// stopped before. to's own header must already name from's file as its backing
// file; QEMU does not write it.
func (m *Monitor) SwitchOverlay(ctx context.Context, from, to string) error {
	return m.client.Execute(ctx, "blockdev-snapshot", struct {
		Node    string `json:"node"`
		Overlay string `json:"overlay"`
	}{from, to}, nil)
}

// TopNode returns the name of the node that the guest writes to.
func (m *Monitor) TopNode(ctx context.Context) (string, error) {
	var node string
	err := m.client.Execute(ctx, "qom-get", struct {
		Path     string `json:"path"`
		Property string `json:"property"`
	}{"/machine/peripheral/" + DiskDevice, "drive"}, &node)
	if err == nil && node == "" {
		err = errors.New("the disk has no node")
	}
	return node, err
}

// Chain lists the disk's qcow2 nodes from the top to the last backing file. It
// is two commands.
func (m *Monitor) Chain(ctx context.Context) ([]BlockNode, error) {
	top, err := m.TopNode(ctx)
	if err != nil {
		return nil, fmt.Errorf("list chain: %w", err)
	}
	var nodes []struct {
		Name  string `json:"node-name"`
		File  string `json:"file"`
		Image image  `json:"image"`
	}
	flat := struct {
		Flat bool `json:"flat"`
	}{false}
	if err := m.client.Execute(ctx, "query-named-block-nodes", flat, &nodes); err != nil {
		return nil, fmt.Errorf("list chain: %w", err)
	}
	names := map[string]string{}
	var head *image
	for _, node := range nodes {
		if node.Image.Format != "qcow2" {
			continue
		}
		names[node.File] = node.Name
		if node.Name == top {
			head = &node.Image
		}
	}
	var chain []BlockNode
	for ; head != nil; head = head.Backing {
		chain = append(chain, BlockNode{Name: names[head.Filename], File: head.Filename})
	}
	return chain, nil
}

// image is QEMU's description of a file and, nested in it, of those below.
type image struct {
	Filename string `json:"filename"`
	Format   string `json:"format"`
	Backing  *image `json:"backing-image"`
}

// Stream copies into node top everything that it inherits from the nodes
// between it and base, and makes base its backing file, under the name
// backingName in top's header. An empty base copies everything and leaves no
// backing file. The guest may run. Stream returns when the job has ended; if ctx
// ends first it cancels the job, which leaves top valid with its old backing.
func (m *Monitor) Stream(ctx context.Context, top, base, backingName string) error {
	job := "stream-" + top
	events, cancel := m.client.Subscribe(16 * eventRoom)
	defer cancel()
	err := m.client.Execute(ctx, "block-stream", struct {
		JobID       string `json:"job-id"`
		Device      string `json:"device"`
		BaseNode    string `json:"base-node,omitempty"`
		BackingFile string `json:"backing-file,omitempty"`
	}{job, top, base, backingName}, nil)
	if err != nil {
		return fmt.Errorf("stream %s: %w", top, err)
	}
	err = m.jobEnd(ctx, job, events)
	if ctx.Err() != nil {
		err = errors.Join(err, m.cancelJob(context.WithoutCancel(ctx), job, events))
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", top, err)
	}
	return nil
}

// cancelJob ends a job and waits for its end; a job that has ended is success.
func (m *Monitor) cancelJob(ctx context.Context, job string, events <-chan qmp.Event) error {
	err := m.client.Execute(ctx, "block-job-cancel", struct {
		Device string `json:"device"`
	}{job}, nil)
	var refused *qmp.CommandError
	if errors.As(err, &refused) && refused.Class == "DeviceNotActive" {
		return nil
	}
	if err != nil {
		return err
	}
	if err := m.jobEnd(ctx, job, events); !errors.Is(err, errJobCancelled) {
		return err
	}
	return nil
}

var errJobCancelled = errors.New("block job cancelled")

// jobEnd waits for the end of a block job.
func (m *Monitor) jobEnd(ctx context.Context, job string, events <-chan qmp.Event) error {
	for {
		select {
		case event, ok := <-events:
			if !ok {
				return m.lost()
			}
			if ended, err := jobResult(event, job); ended || err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func jobResult(event qmp.Event, job string) (bool, error) {
	if event.Name != "BLOCK_JOB_COMPLETED" && event.Name != "BLOCK_JOB_CANCELLED" {
		return false, nil
	}
	var data struct {
		Device string `json:"device"`
		Error  string `json:"error"`
	}
	if err := json.Unmarshal(event.Data, &data); err != nil {
		return false, fmt.Errorf("decode block job event: %w", err)
	}
	switch {
	case data.Device != job:
		return false, nil
	case event.Name == "BLOCK_JOB_CANCELLED":
		return true, errJobCancelled
	case data.Error != "":
		return true, errors.New(data.Error)
	default:
		return true, nil
	}
}

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
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
		chain = append(chain, BlockNode{Name: names[head.Filename], File: plainName(head.Filename)})
	}
	return chain, nil
}

// plainName finds the path in the description that QEMU gives instead of one
// for a node whose backing file is another than its header says.
func plainName(filename string) string {
	description, ok := strings.CutPrefix(filename, "json:")
	if !ok {
		return filename
	}
	var node struct {
		File struct {
			Filename string `json:"filename"`
		} `json:"file"`
	}
	if err := json.Unmarshal([]byte(description), &node); err != nil || node.File.Filename == "" {
		return filename
	}
	return node.File.Filename
}

// image is QEMU's description of a file and, nested in it, of those below.
type image struct {
	Filename string `json:"filename"`
	Format   string `json:"format"`
	Backing  *image `json:"backing-image"`
}

// WriteBack brings to the host's disk what the guest has written to the disk
// file at path. Done while the guest runs, just before a Stop, it leaves little
// for the flush in Stop to wait for: that flush is part of the pause.
func WriteBack(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("write back disk: %w", err)
	}
	if err := errors.Join(unix.Fdatasync(int(f.Fd())), f.Close()); err != nil {
		return fmt.Errorf("write back disk: %w", err)
	}
	return nil
}

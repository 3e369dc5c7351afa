package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pandovm/pando/internal/qemu/qmp"
)

// eventRoom is enough for the events of one job and of what the guest does
// meanwhile.
const eventRoom = 1024

// Stream copies into node top everything that it inherits from the nodes
// between it and base, and makes base its backing file, under the name
// backingName in top's header. An empty base copies everything and leaves no
// backing file. The guest may run. Stream returns when the job has ended and
// everything below top that it no longer needs may be deleted. If ctx ends first
// it cancels the job, which leaves top valid with its old backing.
func (m *Monitor) Stream(ctx context.Context, top, base, backingName string) error {
	events, cancel := m.client.Subscribe(eventRoom)
	defer cancel()
	j := job{monitor: m, id: "stream-" + top, events: events}
	// Not cancelled half-way: the job would have started without anybody to end it.
	err := m.client.Execute(context.WithoutCancel(ctx), "block-stream", struct {
		JobID        string `json:"job-id"`
		Device       string `json:"device"`
		BaseNode     string `json:"base-node,omitempty"`
		BackingFile  string `json:"backing-file,omitempty"`
		AutoFinalize bool   `json:"auto-finalize"`
	}{j.id, top, base, backingName, false}, nil)
	if err == nil {
		err = j.finish(ctx)
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", top, err)
	}
	return nil
}

// job is a running block job.
type job struct {
	monitor *Monitor
	id      string
	events  <-chan qmp.Event
}

// The events that tell how far a job is.
const (
	jobPending   = "BLOCK_JOB_PENDING"
	jobCompleted = "BLOCK_JOB_COMPLETED"
	jobCancelled = "BLOCK_JOB_CANCELLED"
)

var errJobCancelled = errors.New("block job cancelled")

// finish sees the job through, or cancels it when ctx ends.
func (j job) finish(ctx context.Context) error {
	err := j.await(ctx, jobPending)
	if err == nil {
		err = j.finalize(ctx)
	}
	if err == nil {
		err = j.await(ctx, jobCompleted)
	}
	if ctx.Err() != nil {
		return errors.Join(err, j.cancel(context.WithoutCancel(ctx)))
	}
	return err
}

// finalize lets the job change the image's header. What it copied must be in the
// file before: the tables that lead to it may still be in QEMU's memory, and a
// QEMU killed now would leave a header that no longer names their old source.
func (j job) finalize(ctx context.Context) error {
	if err := j.monitor.flush(ctx); err != nil {
		return err
	}
	return j.monitor.client.Execute(ctx, "block-job-finalize", struct {
		ID string `json:"id"`
	}{j.id}, nil)
}

// flush writes what QEMU holds back of the disk. Its answer is text for people.
func (m *Monitor) flush(ctx context.Context) error {
	var said string
	err := m.client.Execute(ctx, "human-monitor-command", struct {
		Line string `json:"command-line"`
	}{"qemu-io -d /machine/peripheral/" + DiskDevice + "/virtio-backend flush"}, &said)
	if said = strings.TrimSpace(said); err == nil && said != "" {
		err = fmt.Errorf("flush: qemu said %q", said)
	}
	return err
}

// cancel ends the job and waits for its end; a job that has ended is success.
func (j job) cancel(ctx context.Context) error {
	err := j.monitor.client.Execute(ctx, "block-job-cancel", struct {
		Device string `json:"device"`
	}{j.id}, nil)
	var refused *qmp.CommandError
	if errors.As(err, &refused) && refused.Class == "DeviceNotActive" {
		return nil
	}
	if err != nil {
		return err
	}
	if err := j.await(ctx, jobCompleted); !errors.Is(err, errJobCancelled) {
		return err
	}
	return nil
}

// await returns when the job says that it is as far, or has ended before.
func (j job) await(ctx context.Context, stage string) error {
	for {
		select {
		case event, ok := <-j.events:
			if !ok {
				return j.monitor.lost()
			}
			if reached, err := j.reached(event, stage); reached || err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (j job) reached(event qmp.Event, stage string) (bool, error) {
	if event.Name != jobPending && event.Name != jobCompleted && event.Name != jobCancelled {
		return false, nil
	}
	var data struct {
		Device string `json:"device"`
		ID     string `json:"id"` // instead of device, in the first of them
		Error  string `json:"error"`
	}
	if err := json.Unmarshal(event.Data, &data); err != nil {
		return false, fmt.Errorf("decode block job event: %w", err)
	}
	switch {
	case data.Device != j.id && data.ID != j.id:
		return false, nil
	case data.Error != "":
		return true, errors.New(data.Error)
	case event.Name == jobCancelled:
		return true, errJobCancelled
	default:
		return event.Name == stage, nil
	}
}

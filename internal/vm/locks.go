package vm

import (
	"context"
	"fmt"
	"sync"
)

// locks orders the use cases of one VM. A waiter queues; it gives up when its
// context ends. The zero value is ready.
type locks struct {
	mu   sync.Mutex
	held map[string]*turn
}

// turn is a mutex that can be waited for with a context.
type turn struct {
	free  chan struct{}
	users int
}

// acquire returns the function that gives the lock back.
func (l *locks) acquire(ctx context.Context, id string) (release func(), err error) {
	t := l.join(id)
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; l.leave(id, t) }, nil
	case <-ctx.Done():
		l.leave(id, t)
		return nil, fmt.Errorf("wait for the operation under way on vm %s: %w", id, context.Cause(ctx))
	}
}

func (l *locks) join(id string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]*turn{}
	}
	t := l.held[id]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		l.held[id] = t
	}
	t.users++
	return t
}

func (l *locks) leave(id string, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(l.held, id)
	}
}

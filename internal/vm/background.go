package vm

import (
	"context"
	"sync"
)

// group runs work that outlives the call that started it. The zero value is ready.
type group struct {
	wg     sync.WaitGroup
	once   sync.Once
	cancel context.CancelFunc
	ctx    context.Context //nolint:containedctx // the lifetime of the group itself, not of a request
}

func (g *group) start() {
	g.ctx, g.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // the group outlives every request
}

// run starts work, which must return soon after its context ends.
func (g *group) run(work func(ctx context.Context)) {
	g.once.Do(g.start)
	g.wg.Go(func() { work(g.ctx) })
}

// close ends the work and waits for it.
func (g *group) close() {
	g.once.Do(g.start)
	g.cancel()
	g.wg.Wait()
}

package storetest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandovm/pando/internal/operation"
)

func aKey(b *bench, key string) operation.Record {
	return operation.Record{Owner: "acct", Key: key, Fingerprint: "f-" + key, Seed: "s-" + key, CreatedAt: b.clock.Now()}
}

func anAnswer() operation.Answer {
	return operation.Answer{
		Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}, "X-Two": {"a", "b"}},
		Body: []byte("{\"a\":\"\x00\xff\"}\n"), RequestID: "req-1",
	}
}

// never is a moment before every record.
func never() time.Time { return time.Unix(0, 0) }

func keyLife(b *bench) {
	t, ctx := b.t, b.t.Context()
	first := aKey(b, "k")
	rec, claimed, err := b.ClaimKey(ctx, first, never())
	must(t, err)
	if equal(t, rec, first); !claimed {
		t.Error("a new key was not claimed")
	}
	other := aKey(b, "k")
	other.Fingerprint, other.Seed = "other", "other"
	for range 2 {
		rec, claimed, err = b.ClaimKey(ctx, other, never())
		must(t, err)
		if equal(t, rec, first); claimed {
			t.Error("a key was claimed twice")
		}
	}
	must(t, b.ReseedKey(ctx, "acct", "k", "s-2"))
	answer := anAnswer()
	must(t, b.AnswerKey(ctx, "acct", "k", answer))
	first.Seed, first.Answer = "s-2", &answer
	rec, _, err = b.ClaimKey(ctx, other, never())
	must(t, err)
	equal(t, rec, first)

	must(t, b.DropKey(ctx, "acct", "k"))
	must(t, b.DropKey(ctx, "acct", "k"))
	rec, claimed, err = b.ClaimKey(ctx, other, never())
	must(t, err)
	if equal(t, rec, other); !claimed {
		t.Error("a dropped key was not free")
	}
}

func keyOwners(b *bench) {
	t, ctx := b.t, b.t.Context()
	mine, theirs := aKey(b, "k"), aKey(b, "k")
	theirs.Owner, theirs.Seed = "someone", "other"
	for _, r := range []operation.Record{mine, theirs} {
		if _, claimed, err := b.ClaimKey(ctx, r, never()); err != nil || !claimed {
			t.Fatalf("claimed %v, %v", claimed, err)
		}
	}
	must(t, b.DropKey(ctx, theirs.Owner, "k"))
	rec, claimed, err := b.ClaimKey(ctx, mine, never())
	must(t, err)
	if equal(t, rec, mine); claimed {
		t.Error("one owner's drop freed the other's key")
	}
}

func keyEmptyAnswer(b *bench) {
	t, ctx := b.t, b.t.Context()
	_, _, err := b.ClaimKey(ctx, aKey(b, "k"), never())
	must(t, err)
	must(t, b.AnswerKey(ctx, "acct", "k", operation.Answer{Status: 204}))
	rec, _, err := b.ClaimKey(ctx, aKey(b, "k"), never())
	must(t, err)
	if rec.Answer == nil || rec.Answer.Status != 204 || len(rec.Answer.Body) != 0 {
		t.Errorf("got %+v, want an empty 204", rec.Answer)
	}
}

func keyExpiry(b *bench) {
	t, ctx := b.t, b.t.Context()
	for _, key := range []string{"a", "b"} {
		_, _, err := b.ClaimKey(ctx, aKey(b, key), never())
		must(t, err)
		b.clock.Advance(time.Hour)
	}
	// What was created until an hour ago is gone: that is a, and b exactly.
	if _, claimed, err := b.ClaimKey(ctx, aKey(b, "c"), b.clock.Now().Add(-time.Hour-1)); err != nil || !claimed {
		t.Fatalf("claimed %v, %v", claimed, err)
	}
	_, claimed, err := b.ClaimKey(ctx, aKey(b, "b"), never())
	must(t, err)
	if claimed {
		t.Error("a key expired too early")
	}
	_, claimed, err = b.ClaimKey(ctx, aKey(b, "a"), never())
	must(t, err)
	if !claimed {
		t.Error("a key did not expire")
	}
}

func keyRace(b *bench) {
	t, ctx := b.t, b.t.Context()
	var winners atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, claimed, err := b.ClaimKey(ctx, aKey(b, "k"), never())
			if err != nil {
				t.Error(err)
			}
			if claimed {
				winners.Add(1)
			}
		})
	}
	all.Wait()
	if winners.Load() != 1 {
		t.Errorf("%d callers claimed the same key", winners.Load())
	}
}

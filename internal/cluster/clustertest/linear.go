package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// asked is one operation on a session: by whom, and what it had seen.
type asked struct {
	what, key string
	by        string
	owner     string // as seen, for take
	epoch     int64
	level     string // for put, save and release
}

// told is what came of it.
type told struct {
	how   string // ok, moved, fenced, none or unknown
	owner string
	epoch int64
	level string
}

// record is a session as it ought to be: no owner and epoch 0 if there is none.
type record struct {
	owner string
	epoch int64
	level string
}

// sequential is what the store has to look like: as if one operation came after the other.
// What became of one that has no answer is not known.
var sequential = porcupine.NondeterministicModel{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range all {
			key := o.Input.(asked).key
			by[key] = append(by[key], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range by {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{record{}} },
	Step: func(state, input, output any) []any {
		was, a, t := state.(record), input.(asked), output.(told)
		there := was.epoch > 0
		var next record
		may := false // whether it does anything in this state
		switch a.what {
		case "find":
			if t.how == "none" && !there || t.how == "ok" && was == (record{t.owner, t.epoch, t.level}) || t.how == "unknown" {
				return []any{was}
			}
			return nil
		case "put":
			next, may = record{a.by, 1, a.level}, !there
		case "take":
			next, may = record{a.by, was.epoch + 1, was.level}, there && was.owner == a.owner && was.epoch == a.epoch
		case "save":
			next, may = record{was.owner, was.epoch, a.level}, there && was.owner == a.by && was.epoch == a.epoch
		case "release":
			next, may = record{"", was.epoch, a.level}, there && was.owner == a.by && was.epoch == a.epoch
		case "delete":
			next, may = record{}, there && was.owner == a.by && was.epoch == a.epoch
		}
		switch t.how {
		case "ok":
			if a.what == "delete" && !may {
				return []any{was} // another's is no error
			}
			if may && next == (record{t.owner, t.epoch, t.level}) || may && a.what == "delete" {
				return []any{next}
			}
		case "moved":
			if !may && there && was.owner == t.owner && was.epoch == t.epoch {
				return []any{was}
			}
		case "fenced":
			if !may {
				return []any{was}
			}
		case "none":
			if !there {
				return []any{was}
			}
		case "unknown":
			if may {
				return []any{was, next}
			}
			return []any{was}
		}
		return nil
	},
}

// player is an instance that makes operations.
type player struct {
	*history
	t     testing.TB
	id    int // in the history; another one after each operation without an answer
	by    string
	store session.Store
}

// history has the operations of all players.
type history struct {
	before func(done int)

	mu      sync.Mutex // guards the rest
	all     []porcupine.Operation
	clock   int64
	players int
}

// Linear plays eight instances that write, take over, release and delete a few sessions, each as it has seen them last,
// while the store fails now and then, and keeps what it has confirmed. What they are told has to be as if one operation had
// come after the other: no two own a session at one epoch, and none writes over another (S-011). before is called before
// each operation, with the number of those that are done, from any goroutine: it may make the store fail.
func Linear(t *testing.T, as func(owner string) session.Store, before func(done int)) {
	const each = 120
	h := &history{before: before, players: 8}
	var wg sync.WaitGroup
	for i := range h.players {
		p := &player{history: h, t: t, id: i, by: fmt.Sprint("i", i)}
		p.store = as(p.by)
		wg.Go(func() {
			for n := range each {
				p.play(fmt.Sprint(p.by, " ", n))
			}
		})
	}
	wg.Wait()
	unknown, took := 0, 0
	for _, op := range h.all {
		switch t := op.Output.(told); {
		case t.how == "unknown":
			unknown++
		case t.how == "ok" && op.Input.(asked).what == "take":
			took++
		}
	}
	t.Logf("%d operations, %d sessions were taken over, %d operations without an answer", len(h.all), took, unknown)
	if took == 0 || unknown == 0 {
		t.Error("nothing was taken over, or no answer was lost: the test tries nothing")
	}
	if result := porcupine.CheckOperationsTimeout(sequential.ToModel(), h.all, 0); result != porcupine.Ok {
		t.Errorf("the history is %s", result)
	}
}

// play makes one or two operations on one of the sessions.
func (p *player) play(level string) {
	key := session.Key(fmt.Sprint("session ", rand.IntN(4)))
	h, err := p.do(asked{what: "find", key: key}, func(ctx context.Context) (session.Held, error) { return p.store.Find(ctx, key) })
	a := asked{
		key:   key,
		by:    p.by,
		owner: h.Owner,
		epoch: h.Epoch,
		level: level,
	}
	switch what := rand.IntN(10); {
	case errors.Is(err, session.ErrNotFound):
		a.what = "put"
		_, _ = p.do(a, func(ctx context.Context) (session.Held, error) {
			return p.store.Put(ctx, session.Held{Record: session.Record{Key: key, Level: []byte(level)}})
		})
	case err != nil:
	case h.Owner != p.by:
		a.what = "take"
		_, _ = p.do(a, func(ctx context.Context) (session.Held, error) { return p.store.Take(ctx, h) })
	case what < 6:
		a.what = "save"
		p.write(a, h, p.by, p.store.Save)
	case what < 9:
		a.what = "release"
		p.write(a, h, "", p.store.Release)
	default:
		a.what = "delete"
		p.write(a, h, p.by, p.store.Delete)
	}
}

// write makes an operation that returns no session.
func (p *player) write(a asked, h session.Held, owner string, f func(context.Context, session.Held) error) {
	h.Level = []byte(a.level)
	_, _ = p.do(a, func(ctx context.Context) (session.Held, error) {
		if err := f(ctx, h); err != nil {
			return session.Held{}, err
		}
		h.Owner = owner
		return h, nil
	})
}

// do makes an operation, and notes when it began and ended, and what came of it.
func (p *player) do(q asked, f func(context.Context) (session.Held, error)) (session.Held, error) {
	p.mu.Lock()
	done := len(p.all)
	p.mu.Unlock()
	p.before(done)
	call := p.now()
	h, err := f(p.t.Context())
	op := porcupine.Operation{ClientId: p.id, Input: q, Call: call, Return: p.now()}
	a := told{how: "ok", owner: h.Owner, epoch: h.Epoch, level: string(h.Level)}
	moved, isMoved := errors.AsType[*session.Moved](err)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
	case isMoved:
		a = told{how: "moved", owner: moved.Owner, epoch: moved.Epoch}
	case errors.Is(err, session.ErrFenced):
		a = told{how: "fenced"}
	case errors.Is(err, session.ErrNotFound):
		a = told{how: "none"}
	default: // it may be done at any time from now on
		a = told{how: "unknown"}
		op.Return = math.MaxInt64
		p.id = p.players
		p.players++
	}
	op.Output = a
	p.all = append(p.all, op)
	return h, err
}

// now returns the time by a clock that goes on with each look at it.
func (h *history) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	return h.clock
}

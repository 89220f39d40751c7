package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	goredis "github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
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

// Eight instances write, take over, release and delete a few sessions, each as it has seen
// them last, while the store is killed now and then (it keeps what it has confirmed). What
// they are told is as if one had come after the other: no two own a session at one epoch,
// and none writes over another (S-011).
func TestLinear(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	const instances, each, kills = 8, 120, 3
	begun := time.Now()
	var mu sync.Mutex // guards all
	var all []porcupine.Operation
	var clients atomic.Int64
	var done atomic.Int64
	clients.Store(instances)
	// The library tries again by itself what may have been done: that would be two
	// operations.
	c := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: []string{server.Address}, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	up := make(chan struct{}) // closed while the server is up
	close(up)
	var wg sync.WaitGroup
	for i := range instances {
		wg.Go(func() {
			me, by := redis.New(c, options(fmt.Sprint("i", i))), fmt.Sprint("i", i)
			id := i
			do := func(q asked, f func(context.Context) (session.Held, error)) (session.Held, error) {
				mu.Lock()
				ready := up
				mu.Unlock()
				<-ready
				call := time.Since(begun).Nanoseconds()
				h, err := f(t.Context())
				op := porcupine.Operation{ClientId: id, Input: q, Call: call, Return: time.Since(begun).Nanoseconds()}
				a := told{how: "ok", owner: h.Owner, epoch: h.Epoch, level: string(h.Level)}
				moved, isMoved := errors.AsType[*session.Moved](err)
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
					id = int(clients.Add(1))
				}
				op.Output = a
				mu.Lock()
				all = append(all, op)
				mu.Unlock()
				done.Add(1)
				return h, err
			}
			for n := range each {
				key := session.Key(fmt.Sprint("session ", rand.IntN(4)))
				level := fmt.Sprint(by, " ", n)
				h, err := do(asked{what: "find", key: key}, func(ctx context.Context) (session.Held, error) { return me.Find(ctx, key) })
				switch {
				case errors.Is(err, session.ErrNotFound):
					_, _ = do(asked{what: "put", key: key, by: by, level: level}, func(ctx context.Context) (session.Held, error) {
						return me.Put(ctx, session.Held{Record: session.Record{Key: key, Level: []byte(level)}})
					})
					continue
				case err != nil:
					continue
				}
				a := asked{key: key, by: by, owner: h.Owner, epoch: h.Epoch, level: level}
				writes := func(what string, owner string, f func(context.Context, session.Held) error) {
					a.what = what
					h.Level = []byte(level)
					_, _ = do(a, func(ctx context.Context) (session.Held, error) {
						if err := f(ctx, h); err != nil {
							return session.Held{}, err
						}
						h.Owner = owner
						return h, nil
					})
				}
				switch what := rand.IntN(10); {
				case h.Owner != by:
					a.what = "take"
					_, _ = do(a, func(ctx context.Context) (session.Held, error) { return me.Take(ctx, h) })
				case what < 6:
					writes("save", by, me.Save)
				case what < 9:
					writes("release", "", me.Release)
				default:
					writes("delete", "", me.Delete)
				}
			}
		})
	}
	for n := range kills {
		for done.Load() < int64((n+1)*instances*each/(kills+1)) {
			time.Sleep(time.Millisecond)
		}
		mu.Lock()
		up = make(chan struct{})
		mu.Unlock()
		server.Kill()
		server.Run()
		mu.Lock()
		close(up)
		mu.Unlock()
	}
	wg.Wait()
	unknown, took := 0, 0
	for _, op := range all {
		switch t := op.Output.(told); {
		case t.how == "unknown":
			unknown++
		case t.how == "ok" && op.Input.(asked).what == "take":
			took++
		}
	}
	t.Logf("%d operations, %d sessions were taken over, %d operations without an answer", len(all), took, unknown)
	if took == 0 {
		t.Error("nothing was taken over: the test tries nothing")
	}
	if result := porcupine.CheckOperationsTimeout(sequential.ToModel(), all, 0); result != porcupine.Ok {
		t.Errorf("the history is %s", result)
	}
}

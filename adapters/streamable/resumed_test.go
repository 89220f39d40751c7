package streamable

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// instances are bridges that use one store.
type instances struct {
	t       *testing.T
	records *session.Memory
	streams *replay.Memory
	over    func(replay.Store) replay.Store // around that; may be nil
}

// start starts an instance.
func (i *instances) start(name string) *rig {
	var store replay.Store = i.streams
	if i.over != nil {
		store = i.over(store)
	}
	copies := replay.NewCopies(store, slog.New(slog.DiscardHandler))
	i.t.Cleanup(copies.Close)
	return newRig(i.t, &wiretest.Server{}, gateway.Options{Sessions: i.records.As(name)}, Options{Copies: copies})
}

// adopt has an instance take a session over, as after the death of the one before.
func (i *instances) adopt(to *rig, name, id string) *client {
	i.t.Helper()
	seen, err := i.records.Find(i.t.Context(), session.Key(id))
	if err != nil {
		i.t.Fatal(err)
	}
	h, err := i.records.As(name).Take(i.t.Context(), seen)
	if err != nil {
		i.t.Fatal(err)
	}
	if err := to.d.Adopt(id, h); err != nil {
		i.t.Fatal(err)
	}
	return &client{rig: to, id: id}
}

func several(t *testing.T, f func(t *testing.T, i *instances)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &instances{t: t, records: session.NewMemory(10), streams: replay.NewMemory()})
	})
}

const said = `{"jsonrpc":"2.0","method":"notifications/message","params":{"n":1}}`

// datas returns what the events say.
func datas(r *wiretest.Reply) (all []string) {
	for _, e := range r.Events() {
		all = append(all, e.Data)
	}
	return all
}

// The stream of a call continues at the next owner of the session, behind each of its events:
// what was missed comes once, and then one error, for the call has been lost (S-031,
// S-032). Later events of the owner before reach no client. The owner after that has the same.
func TestStreamTaken(t *testing.T) {
	for behind := range 4 {
		several(t, func(t *testing.T, i *instances) {
			r, b, c := i.start("a"), i.start("b"), i.start("c")
			one := r.begin("2025-11-25")
			call := one.call("7", "wait", "{}")
			synctest.Wait()
			for range 3 {
				r.s.Say(said)
			}
			synctest.Wait()
			events := call.Events() // the first has only an id
			if len(events) != 4 {
				t.Fatalf("%d events", len(events))
			}
			two := i.adopt(b, "b", one.id)
			resumed := two.get("Last-Event-ID", events[behind].ID).Wait()
			r.s.Answer("{}") // a is not dead: it only thinks that it is the owner
			synctest.Wait()
			want := slices.Repeat([]string{said}, 3-behind)
			got := datas(resumed)
			if len(got) != len(want)+1 || !slices.Equal(got[:len(want)], want) || !strings.Contains(got[len(want)], `"id":7,"error"`) || !strings.Contains(got[len(want)], "upstream_lost") {
				t.Errorf("behind event %d: %q", behind, got)
			}
			if rest := two.get("Last-Event-ID", resumed.Events()[len(got)-1].ID).Wait(); rest.Status() != 405 {
				t.Errorf("behind the end: %d %s", rest.Status(), rest.Body())
			}
			synctest.Wait()
			three := i.adopt(c, "c", one.id)
			if again := datas(three.get("Last-Event-ID", events[behind].ID).Wait()); !slices.Equal(again, got) {
				t.Errorf("the owner after that has %q, want %q", again, got)
			}
			call.Wait()
		})
	}
}

// A stream that has ended is only replayed, and one for messages that belong to no call continues.
func TestStreamTakenLives(t *testing.T) {
	several(t, func(t *testing.T, i *instances) {
		r, b := i.start("a"), i.start("b")
		one := r.begin("2025-11-25")
		call := one.call("7", "steps", `{"n":3}`).Wait()
		get := one.get()
		synctest.Wait()
		r.s.Say(said)
		r.s.Say(said)
		synctest.Wait()
		two := i.adopt(b, "b", one.id)
		events := call.Events()
		if got := datas(two.get("Last-Event-ID", events[1].ID).Wait()); !slices.Equal(got, datas(call)[2:]) {
			t.Errorf("the stream of a call = %q, want %q", got, datas(call)[2:])
		}
		again := two.get("Last-Event-ID", get.Events()[1].ID)
		synctest.Wait()
		if got := datas(again); !slices.Equal(got, []string{said}) {
			t.Errorf("what was missed = %q", got)
		}
		if got := two.call("8", "echo", "{}").Wait(); got.Status() != 200 { // opens the connection
			t.Fatalf("%d %s", got.Status(), got.Body())
		}
		b.s.Say(said)
		synctest.Wait()
		if got := again.Events(); again.Over() || !slices.Contains(datas(again)[1:], said) {
			t.Errorf("what came then = %+v", got)
		}
		again.Leave()
		get.Leave()
		synctest.Wait()
	})
}

// The store keeps as many streams of a session as its instance does.
func TestCopiesOfSession(t *testing.T) {
	several(t, func(t *testing.T, i *instances) {
		r := i.start("a")
		one := r.begin("2025-11-25")
		var streams []string
		for range keepStreams + 10 {
			name, _, _ := replay.ParseID(one.call("7", "steps", `{"n":1}`).Wait().Events()[0].ID)
			streams = append(streams, name)
		}
		synctest.Wait()
		kept := 0
		for _, name := range streams {
			if _, err := i.streams.Take(t.Context(), session.Key(one.id), name, 0, 1<<32); err == nil {
				kept++
			}
		}
		if _, err := i.streams.Take(t.Context(), session.Key(one.id), streams[len(streams)-1], 0, 1<<32); err != nil || kept > keepStreams {
			t.Errorf("%d streams are copied, want at most %d; the last: %v", kept, keepStreams, err)
		}
	})
}

// Nothing is known of streams of other sessions, of what was not copied, and of
// what the client has seen more of.
func TestStreamNotTaken(t *testing.T) {
	several(t, func(t *testing.T, i *instances) {
		r, b := i.start("a"), i.start("b")
		mine, theirs := r.begin("2025-11-25"), r.begin("2025-11-25")
		call := theirs.call("7", "steps", `{"n":3,"secret":1}`).Wait()
		synctest.Wait()
		name, seq, _ := replay.ParseID(call.Events()[3].ID)
		two := i.adopt(b, "b", mine.id)
		for _, id := range []string{call.Events()[1].ID, replay.ID(name, seq+5), replay.ID("pUNKNOWN", 0), replay.ID(name, 9<<32)} {
			if r := two.get("Last-Event-ID", id).Wait(); r.Status() != 400 || strings.Contains(r.Body(), "progress") {
				t.Errorf("behind %s: %d %s", id, r.Status(), r.Body())
			}
		}
		other := i.adopt(b, "b", theirs.id)
		if r := other.get("Last-Event-ID", replay.ID(name, seq+5)).Wait(); r.Status() != 400 {
			t.Errorf("behind more than was copied: %d %s", r.Status(), r.Body())
		}
	})
}

// hooked is a store that calls before ahead of each Take, and fails with its error.
type hooked struct {
	replay.Store
	before func() error
}

func (h *hooked) Take(ctx context.Context, session, stream string, seq, mark int64) (replay.Taken, error) {
	if err := h.before(); err != nil {
		return replay.Taken{}, err
	}
	return h.Store.Take(ctx, session, stream, seq, mark)
}

// A client that comes back while the store is away gets 503 to try again, and not that its
// stream is forgotten (S-027). A stream for what belongs to no call begins anew.
func TestStreamOutOfReach(t *testing.T) {
	several(t, func(t *testing.T, i *instances) {
		var away error
		i.over = func(s replay.Store) replay.Store { return &hooked{s, func() error { return away }} }
		a, b := i.start("a"), i.start("b")
		one := a.begin("2025-11-25")
		call := one.call("7", "steps", `{"n":3}`).Wait()
		get := one.get()
		synctest.Wait()
		a.s.Say(said)
		synctest.Wait()
		two := i.adopt(b, "b", one.id)
		away = session.ErrUnavailable
		id := call.Events()[1].ID
		if r := two.get("Last-Event-ID", id).Wait(); r.Status() != 503 || r.Header("Retry-After") != "2" || !strings.Contains(r.Body(), `"bridge":"unavailable"`) {
			t.Errorf("without the store: %d %q %s", r.Status(), r.Header("Retry-After"), r.Body())
		}
		anew := two.get("Last-Event-ID", get.Events()[0].ID)
		synctest.Wait()
		if anew.Status() != 200 || anew.Over() {
			t.Errorf("a stream for what belongs to no call: %d", anew.Status())
		}
		away = nil
		if got := datas(two.get("Last-Event-ID", id).Wait()); !slices.Equal(got, datas(call)[2:]) {
			t.Errorf("with it again: %q, want %q", got, datas(call)[2:])
		}
		anew.Leave()
		get.Leave()
		synctest.Wait()
	})
}

// Two requests that take a stream at once have it once: what the slower one has read takes
// no room. The rig says so if it does.
func TestStreamTakenAtOnce(t *testing.T) {
	several(t, func(t *testing.T, i *instances) {
		i.over = func(s replay.Store) replay.Store {
			var both sync.WaitGroup
			both.Add(2)
			return &hooked{s, func() error {
				both.Done()
				both.Wait()
				return nil
			}}
		}
		r, b := i.start("a"), i.start("b")
		one := r.begin("2025-11-25")
		call := one.call("7", "steps", `{"n":3}`).Wait()
		synctest.Wait()
		two := i.adopt(b, "b", one.id)
		first, second := two.get("Last-Event-ID", call.Events()[0].ID), two.get("Last-Event-ID", call.Events()[0].ID)
		want := datas(call)[1:]
		if x, y := datas(first.Wait()), datas(second.Wait()); !slices.Equal(x, want) && !slices.Equal(y, want) {
			t.Errorf("%q and %q, want %q of one", x, y, want)
		}
	})
}

package streamable

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/internal/scaletest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// A client resumes the stream of a POST behind each of its events, while the first connection still holds it and after
// it broke, and during the call and after it: what follows comes once and in order.
func TestResume(t *testing.T) {
	const steps = 5
	for _, holds := range []bool{false, true} {
		for _, over := range []bool{false, true} {
			t.Run(fmt.Sprintf("holds=%t,over=%t", holds, over), func(t *testing.T) {
				run(t, func(t *testing.T, r *rig) {
					for cut := range steps + 1 {
						c := r.begin("2025-11-25")
						first := c.call("1", "wait", "{}")
						synctest.Wait()
						progress := func(i int) {
							r.s.Say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"n":%d}}`, i))
						}
						for i := range steps {
							progress(i)
						}
						synctest.Wait()
						events := first.Events()
						if len(events) != steps+1 {
							t.Fatalf("%d events, want the priming one and %d", len(events), steps)
						}
						if !holds {
							first.Leave()
							synctest.Wait()
						}
						if over {
							r.s.Answer("{}")
							synctest.Wait()
						}
						second := c.get("Last-Event-ID", events[cut].ID)
						synctest.Wait()
						if !over {
							progress(steps)
							r.s.Answer("{}")
						}
						second.Wait()
						got := datas(second)
						var want []string
						last := steps
						if !over {
							last++
						}
						for i := cut; i < last; i++ {
							want = append(want, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"n":%d}}`, i))
						}
						want = append(want, `{"jsonrpc":"2.0","id":1,"result":{}}`)
						if !slices.Equal(got, want) {
							t.Errorf("behind event %d:\ngot  %q\nwant %q", cut, got, want)
						}
						if holds && !over {
							first.Wait()
							if n := len(first.Events()); n != steps+1 {
								t.Errorf("the connection that was taken over got %d events, want %d", n, steps+1)
							}
						}
						// All is read: a stream without events would make some clients come for ever.
						ids := second.Events()
						if rest := c.get("Last-Event-ID", ids[len(ids)-1].ID).Wait(); rest.Status() != 405 || rest.Header("Allow") == "" || !strings.Contains(rest.Body(), "nothing follows") {
							t.Errorf("behind the last event: %d %q", rest.Status(), rest.Body())
						}
					}
				})
			})
		}
	}
}

// Event ids of another session never replay; that of a GET opens a live stream all the same.
func TestForeignEvents(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		mine, theirs := r.begin("2025-06-18"), r.begin("2025-06-18")
		post := theirs.call("1", "steps", `{"n":3,"secret":1}`).Wait()
		get := theirs.get()
		synctest.Wait()
		r.s.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"secret":2}}`)
		synctest.Wait()
		for _, e := range post.Events() {
			if r := mine.get("Last-Event-ID", e.ID).Wait(); r.Status() != 400 || strings.Contains(r.Body(), "progress") {
				t.Errorf("behind %s: %d %s, want 400", e.ID, r.Status(), r.Body())
			}
		}
		if len(get.Events()) != 1 {
			t.Fatalf("the GET got %+v", get.Events())
		}
		a := mine.get("Last-Event-ID", get.Events()[0].ID)
		synctest.Wait()
		if a.Status() != 200 || a.Over() || a.Body() != "" {
			t.Errorf("behind a foreign event of a GET: %d, over %t, %q; want a live stream", a.Status(), a.Over(), a.Body())
		}
		a.Leave()
		get.Leave()
		// Ids of the future do not exist either.
		own := mine.call("1", "steps", `{"n":1}`).Wait().Events()[0].ID
		name, _, _ := replay.ParseID(own)
		if r := mine.get("Last-Event-ID", replay.ID(name, 99)).Wait(); r.Status() != 400 {
			t.Errorf("behind an event that is to come: %d, want 400", r.Status())
		}
	})
}

// A stream that has been resumed may be resumed again, however long it was in use; one without a reader is dropped
// after a while.
func TestResumedStreamIsKept(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.begin("2025-06-18")
		say := func() {
			r.s.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
			synctest.Wait()
		}
		first := c.get()
		synctest.Wait()
		say()
		second := c.get("Last-Event-ID", first.Events()[0].ID) // while the first is there still
		first.Wait()
		synctest.Wait()
		wiretest.Advance(2 * keepFor)
		c.call("1", "log", "{}").Wait() // a new stream: old ones are looked through
		say()
		last := second.Events()[len(second.Events())-1].ID
		second.Leave()
		synctest.Wait()
		say()
		third := c.get("Last-Event-ID", last)
		synctest.Wait()
		if e := third.Events(); len(e) != 1 || !strings.HasPrefix(e[0].ID, last[:10]) {
			t.Errorf("resumed behind %s: %+v, want the one event that was missed", last, e)
		}
		third.Leave()
		wiretest.Advance(2 * keepFor)
		c.call("2", "log", "{}").Wait()
		fourth := c.get("Last-Event-ID", last)
		synctest.Wait()
		if fourth.Status() != 200 || len(fourth.Events()) != 0 {
			t.Errorf("behind a forgotten event of a GET: %d %+v, want a live stream (R-186)", fourth.Status(), fourth.Events())
		}
		fourth.Leave()
	})
}

// Limits: of the GETs of a session the oldest has to go, and the others work.
func TestManyGets(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.begin("2025-06-18")
		var gets []*wiretest.Reply
		for range maxGets + 3 {
			gets = append(gets, c.get())
			synctest.Wait()
		}
		for i, get := range gets {
			if get.Over() != (i < 3) {
				t.Errorf("GET %d: over %t", i, get.Over())
			}
		}
		r.s.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
		synctest.Wait()
		heard := 0
		for _, get := range gets {
			heard += len(get.Events())
			get.Leave()
		}
		if heard != 1 {
			t.Errorf("the message came %d times", heard)
		}
	})
}

// A long session with many questions works on: its history is bounded.
func TestManyQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{}, Options{MaxMessage: 64 << 10}) // 4.25 MiB for questions without a reader
		c := r.begin("2025-06-18")
		get := c.get()
		synctest.Wait()
		pad := strings.Repeat("x", 256<<10)
		many := scaletest.Of(20, 40)
		for i := range many {
			r.s.Say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"pad":%q}}`, i, pad))
			synctest.Wait()
			c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i+1)).Wait()
		}
		synctest.Wait()
		if n := len(get.Events()); n != many {
			t.Errorf("%d questions arrived, want %d", n, many)
		}
		if n := strings.Count(strings.Join(r.s.Got(), ""), `"result":{}`); n != many {
			t.Errorf("%d answers arrived, want %d", n, many)
		}
		get.Leave()
		r.d.mu.RLock()
		p := r.d.peers[c.id]
		r.d.mu.RUnlock()
		if n := p.streams[0].log.Bytes(); n > historyBytes {
			t.Errorf("%d bytes of history, want at most %d", n, historyBytes)
		}
	})
}

// Streams that cannot be resumed any more are dropped, first those that were read.
func TestStreamsBounded(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.begin("2025-06-18")
		unread := c.call("0", "wait", "{}")
		wiretest.Advance(2 * time.Second)
		unread.Leave()
		r.s.Answer("{}")
		for i := range keepStreams + 10 {
			c.call(fmt.Sprint(i+1), "log", "{}").Wait()
		}
		r.d.mu.RLock()
		p := r.d.peers[c.id]
		r.d.mu.RUnlock()
		p.mu.Lock()
		n, oldest := len(p.streams), p.streams[0]
		p.mu.Unlock()
		if n > keepStreams {
			t.Errorf("%d streams are kept, want at most %d", n, keepStreams)
		}
		a := c.get("Last-Event-ID", replay.ID(oldest.id, 0)).Wait()
		if !strings.Contains(a.Body(), `"id":0,"result":{}`) {
			t.Errorf("the answer that nobody read: %d %s", a.Status(), a.Body())
		}
		p = &peer{d: r.d} // and all together have only so many bytes
		for range 3 {
			st := newStream(p, postPrefix, 1)
			st.beginStream()
			st.answer(jsonrpc.NewResult([]byte("1"), []byte(`"`+strings.Repeat("x", keepPeerBytes/2)+`"`)), nil)
			st.detach(st.attach(0))
		}
		if n := len(p.streams); n != 2 {
			t.Errorf("%d streams are kept, want 2", n)
		}
		p.forget()
	})
}

// A client that does not read its stream cannot hold up the end of its session.
func TestEndUnderAStreamNobodyReads(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		c := r.begin("2025-11-25")
		conn := r.Dial()
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n", c.id)
		synctest.Wait()
		for range 3 {
			r.s.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`)
		}
		synctest.Wait()
		began := time.Now()
		r.g.Close(t.Context())
		if took := time.Since(began); took > 2*breakAfter {
			t.Errorf("the end took %v", took)
		}
	})
}

// The history for Last-Event-ID counts among the bytes in flight, and goes first
// when room is needed: clients that read get all their answers, however many there
// are, and what has gone is said to be unknown.
func TestHistoryMakesRoom(t *testing.T) {
	const limit, size, sessions = 2 << 20, 512 << 10, 10
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{MaxBytes: limit}, Options{})
		text := `{"large":"` + strings.Repeat("x", size) + `"}`
		var clients []*client
		var before []string // the event before the answer
		ask := func(c *client) *wiretest.Reply {
			a := c.call("1", "wait", "{}")
			synctest.Wait()
			r.s.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
			synctest.Wait()
			return a
		}
		for i := range sessions {
			c := r.begin("2025-11-25")
			a := ask(c)
			before = append(before, a.Events()[1].ID)
			r.s.Answer(text)
			if a.Wait(); !strings.Contains(a.Body(), text) {
				t.Errorf("session %d: the answer has not come", i)
			}
			if n := r.g.Totals().Bytes; n < size || n > limit {
				t.Errorf("%d bytes are under way after %d answers, want at least one answer, and no more than %d", n, i+1, limit)
			}
			clients = append(clients, c)
		}
		resume := func(i, status int, with string) {
			t.Helper()
			if r := clients[i].get("Last-Event-ID", before[i]).Wait(); r.Status() != status || !strings.Contains(r.Body(), with) {
				t.Errorf("session %d: %d, %.200q", i, r.Status(), r.Body())
			}
		}
		resume(0, 400, "dropped for lack of room")
		resume(sessions-1, 200, text)

		// A client that left before its answer came may come back for it, as long as
		// there is room; who has got an answer gives way before it.
		c := r.begin("2025-11-25")
		a := ask(c)
		id := a.Events()[1].ID
		a.Leave()
		synctest.Wait()
		r.s.Answer(text)
		synctest.Wait()
		for range 2 {
			a := ask(r.begin("2025-11-25"))
			r.s.Answer(text)
			a.Wait()
		}
		if r := c.get("Last-Event-ID", id).Wait(); r.Status() != 200 || !strings.Contains(r.Body(), text) {
			t.Errorf("what was not read yet has gone before what was: %d, %.200q", r.Status(), r.Body())
		}
	})
}

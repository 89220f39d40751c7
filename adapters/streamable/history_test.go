package streamable

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

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

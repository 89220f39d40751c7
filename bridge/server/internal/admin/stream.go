package admin

import (
	"strings"
	"sync"

	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/internal/logs"
)

// perCaller returns the limit of streams of one caller. reserved returns the number of streams that only callers with
// Look may open: other callers cannot exhaust them.
func perCaller(most int) int { return max(1, most/4) }
func reserved(most int) int  { return most / 4 }

// Streams counts the open streams by principal. The zero value is ready for use.
type Streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// Acquire counts a stream of a caller until leave is called. ok is false if too many are open: see perCaller and
// reserved. alone means that there is no other principal, so that perCaller does not apply.
func (s *Streams) Acquire(c *Caller, most int, alone bool) (leave func(), ok bool) {
	principal, room := c.Principal, most
	if !c.Look {
		room -= reserved(most)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= room || !alone && s.of[principal] >= perCaller(most) {
		return nil, false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[principal]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.of[principal]--; s.of[principal] == 0 {
			delete(s.of, principal)
		}
	}, true
}

// Viewer collects the events that a page's caller may see.
type Viewer struct {
	*Feed
	Caller *Caller
	// Server selects the messages of one server, and Session those of the sessions whose id in logs begins with it;
	// empty means all.
	Server, Session string
	// Payloads makes the viewer get the payloads of messages while Calls keeps payloads.
	Payloads bool
	Calls    *calls.Calls
}

var (
	_ calls.Watcher        = (*Viewer)(nil)
	_ calls.TrafficWatcher = (*Viewer)(nil)
)

func (v *Viewer) Begun(r *calls.Row) { v.row(callBegin, r) }

func (v *Viewer) Ended(r *calls.Row) { v.row(callEnd, r) }

func (v *Viewer) row(kind string, r *calls.Row) {
	if v.Caller.Sees(r.Principal) {
		if v.Caller.Act {
			r = r.Explained()
		}
		v.Put(Event{
			Type: kind,
			Data: r,
			Size: 300 + len(r.Name) + len(r.Error) + len(r.Said) + 60*len(r.Marks),
			Call: r.ID,
		})
	}
}

// markEvent is a mark with the id of its call.
type markEvent struct {
	ID string `json:"id"`
	calls.Mark
}

func (v *Viewer) Marked(r *calls.Row, m calls.Mark) {
	if v.Caller.Sees(r.Principal) {
		v.Put(Event{
			Type: callMark,
			Data: markEvent{r.ID, m},
			Size: 80 + len(m.Text),
			Call: r.ID,
		})
	}
}

// Wants implements calls.TrafficWatcher. If the feed is full, Wants counts a dropped event and reports false.
func (v *Viewer) Wants(server, session string) (it, payload bool) {
	if !v.Caller.Look || v.Server != "" && v.Server != server || v.Session != "" && !strings.HasPrefix(session, v.Session) {
		return false, false
	}
	if v.Full() {
		return false, false
	}
	return true, v.Payloads && v.Calls.Keeps()
}

func (v *Viewer) Passed(m *calls.Message) {
	v.Put(Event{
		Type: "message",
		Data: m,
		Size: m.Weight(),
	})
}

// Line adds a line of the log.
func (v *Viewer) Line(one *logs.Line) {
	v.Put(Event{
		Type: "log",
		Data: one,
		Size: one.Weight(),
	})
}

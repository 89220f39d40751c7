package admin

import (
	"strings"
	"sync"

	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/internal/logs"
)

// each returns how many streams one caller may have, and kept how many are reserved for callers that
// may look: others cannot exhaust them.
func each(most int) int { return max(1, most/4) }
func kept(most int) int { return most / 4 }

// Streams counts the open streams by principal. The zero value is ready for use.
type Streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// Enter counts a stream of a caller until leave is called. ok is false if too many are open. alone
// says that there is no other principal.
func (s *Streams) Enter(c *Caller, most int, alone bool) (leave func(), ok bool) {
	principal, room := c.Principal, most
	if !c.Look {
		room -= kept(most)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= room || !alone && s.of[principal] >= each(most) {
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

// Looker collects the events that a page's caller may see.
type Looker struct {
	*Feed
	Who *Caller
	// Server and Session select messages; empty means all.
	Server, Session string
	// Payloads reports whether it gets the payloads of messages.
	Payloads func() bool
}

var (
	_ calls.Watcher        = (*Looker)(nil)
	_ calls.TrafficWatcher = (*Looker)(nil)
)

// Begun implements calls.Watcher.
func (l *Looker) Begun(r *calls.Row) { l.row("call.begin", r) }

// Ended implements calls.Watcher.
func (l *Looker) Ended(r *calls.Row) { l.row("call.end", r) }

func (l *Looker) row(kind string, r *calls.Row) {
	if l.Who.Sees(r.Principal) {
		l.Put(Event{Type: kind, Data: r, Size: 300 + len(r.Name) + len(r.Error) + 60*len(r.Marks)})
	}
}

// markEvent is a mark with the id of its call.
type markEvent struct {
	ID string `json:"id"`
	calls.Mark
}

// Marked implements calls.Watcher.
func (l *Looker) Marked(r *calls.Row, m calls.Mark) {
	if l.Who.Sees(r.Principal) {
		l.Put(Event{Type: "call.mark", Data: markEvent{r.ID, m}, Size: 80 + len(m.Text)})
	}
}

// Wants implements calls.TrafficWatcher.
func (l *Looker) Wants(server, session string) (it, payload bool) {
	if !l.Who.Look || l.Server != "" && l.Server != server || l.Session != "" && !strings.HasPrefix(session, l.Session) {
		return false, false
	}
	return true, l.Payloads()
}

// Passed implements calls.TrafficWatcher.
func (l *Looker) Passed(m *calls.Message) {
	l.Put(Event{Type: "message", Data: m, Size: m.Weight()})
}

// Line adds a line of the log.
func (l *Looker) Line(one *logs.Line) {
	n := 120 + len(one.Text)
	for name, text := range one.Attrs {
		n += len(name) + len(text)
	}
	l.Put(Event{Type: "log", Data: one, Size: n})
}

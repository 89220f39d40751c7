package server

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/adapters/eventstream"
	"github.com/mcp-bridge/bridge/internal/admin"
	"github.com/mcp-bridge/bridge/internal/observe/logs"
	"github.com/mcp-bridge/bridge/internal/observe/report/calls"
	"github.com/mcp-bridge/bridge/internal/visible"
)

// How often a stream of events has what.
const (
	stateEvery    = 500 * time.Millisecond // how servers fare, if that has changed
	processEvery  = 5 * time.Second        // how the process fares, in any case
	sessionsEvery = 2 * time.Second        // likewise: sessions, and whether the caller may look still
)

// topics are what events can be about.
var topics = []string{"servers", "calls", "sessions", "log"}

// snapshot is the first event.
type snapshot struct {
	Status   *overview          `json:"status,omitempty"`
	Calls    *calls.Shown       `json:"calls,omitempty"`
	Sessions *admin.SessionRows `json:"sessions,omitempty"`
	Lines    []*logs.Line       `json:"lines,omitempty"`
}

// changes is what has changed of how the bridge fares.
type changes struct {
	*overview
	Removed []string `json:"removed,omitempty"` // servers
}

// showEvents streams what happens, until the caller leaves or may not look any more.
func (s *Server) showEvents(w http.ResponseWriter, r *http.Request, c *admin.Call) {
	wants := map[string]bool{}
	for topic := range strings.SplitSeq(c.Query.Get("topics"), ",") {
		if !slices.Contains(topics, topic) {
			admin.Refuse(w, http.StatusBadRequest, "query", "topics must be some of "+strings.Join(topics, ","))
			return
		}
		wants[topic] = true
	}
	if wants["log"] && !c.Act {
		admin.Refuse(w, http.StatusForbidden, "denied", "this caller may not see the log: list its name in admin of the configuration file")
		return
	}
	leave, ok := s.streams.Enter(&c.Caller, s.keys == nil)
	if !ok {
		admin.Refuse(w, http.StatusTooManyRequests, "too_many_streams", "too many pages are open")
		return
	}
	defer leave()
	out, err := eventstream.Open(w, r)
	if err != nil {
		return // the client has gone, or its connection cannot be streamed to
	}
	defer out.Close()
	l := admin.Looker{Feed: admin.NewFeed(), Who: &c.Caller}
	if wants["calls"] {
		defer s.calls.Look(l, s.b.Activity)()
	}
	if wants["log"] {
		defer s.logs.Look(l.Line)()
	}
	t := teller{s: s, c: &c.Caller, wants: wants, out: out}
	if t.begin() != nil {
		return
	}
	tick := time.NewTicker(stateEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-l.Wake():
			err = t.pass(l.Feed)
		case now := <-tick.C:
			var more bool
			if more, err = t.look(now); !more {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// teller writes events to one page. It is for one goroutine.
type teller struct {
	s     *Server
	c     *admin.Caller
	wants map[string]bool
	out   *eventstream.Writer

	was                      *overview
	sessions                 *admin.SessionRows
	process, session, beaten time.Time // when they were looked at, and something was written
}

// send writes an event.
func (t *teller) send(kind string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		t.s.log.Error("an event cannot be written", "err", err)
		return nil
	}
	t.beaten = time.Now()
	return t.out.Send(eventstream.Event{Type: kind, Data: visible.JSON(text)})
}

// begin writes how all is.
func (t *teller) begin() error {
	var all snapshot
	now := time.Now()
	if t.wants["servers"] {
		t.was, t.process = t.s.overview(t.c), now
		all.Status = t.was
	}
	if t.wants["calls"] {
		all.Calls = t.s.calls.Show(admin.MaxRows, func(r *calls.Row) bool { return t.c.Sees(r.Principal) })
	}
	if t.wants["sessions"] {
		t.sessions = t.s.acts.Sessions(t.c, admin.MostRows)
		all.Sessions = t.sessions
	}
	if t.wants["log"] {
		all.Lines, _ = t.s.logs.Lines(admin.MostRows, func(*logs.Line) bool { return true })
	}
	t.session = now
	if err := t.send("snapshot", all); err != nil {
		return err
	}
	return t.out.Flush()
}

// pass writes what has happened.
func (t *teller) pass(f *admin.Feed) error {
	events, dropped := f.Take()
	for _, e := range events {
		if err := t.send(e.Type, e.Data); err != nil {
			return err
		}
	}
	if dropped > 0 {
		if err := t.send("dropped", map[string]int{"count": dropped}); err != nil {
			return err
		}
	}
	return t.out.Flush()
}

// look writes what has changed since. more is false when that was the last of it.
func (t *teller) look(now time.Time) (more bool, err error) {
	if t.s.b.Draining() {
		return false, t.bye("stopping")
	}
	if now.Sub(t.session) >= sessionsEvery {
		t.session = now
		if t.c.Good != nil && !t.c.Good() {
			return false, t.bye("signed_out")
		}
		if t.wants["sessions"] {
			if all := t.s.acts.Sessions(t.c, admin.MostRows); !reflect.DeepEqual(all, t.sessions) {
				t.sessions = all
				err = t.send("sessions", all)
			}
		}
	}
	if t.wants["servers"] && err == nil {
		err = t.servers(now)
	}
	if err == nil && now.Sub(t.beaten) >= t.s.c().Heartbeat {
		t.beaten = now
		return true, t.out.Beat()
	}
	if err != nil {
		return true, err
	}
	return true, t.out.Flush()
}

func (t *teller) bye(reason string) error {
	if err := t.send("bye", map[string]string{"reason": reason}); err != nil {
		return err
	}
	return t.out.Flush()
}

// servers writes what has changed of how servers fare.
func (t *teller) servers(now time.Time) error {
	all := t.s.overview(t.c)
	was := map[string]*state{}
	for i := range t.was.Servers {
		was[t.was.Servers[i].Name] = &t.was.Servers[i]
	}
	part := *all.readiness
	part.Servers = []state{}
	for i := range all.Servers {
		one := &all.Servers[i]
		if before := was[one.Name]; before == nil || !reflect.DeepEqual(before, one) {
			part.Servers = append(part.Servers, *one)
		}
		delete(was, one.Name)
	}
	removed := slices.Sorted(maps.Keys(was))
	same := *t.was.readiness
	same.Servers = part.Servers
	t.was.readiness = all.readiness
	if len(removed) == 0 && len(part.Servers) == 0 && reflect.DeepEqual(&same, &part) && now.Sub(t.process) < processEvery {
		return nil
	}
	t.process = now
	return t.send("status", changes{&overview{&part, all.Process}, removed})
}

package admin

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/logs"
)

// maxMarks bounds the marks.
const maxMarks = 256

// Mark is an event that explains a change of the series.
type Mark struct {
	At int64 `json:"at"` // Unix milliseconds
	// Kind is reload, restart, breaker_open, breaker_closed, failing, working, drain or resume.
	Kind   string `json:"kind"`
	Server string `json:"server,omitempty"` // empty for the bridge
	Text   string `json:"text,omitempty"`

	found time.Time // when the bridge compared the states
}

// Marks finds what happened between two looks at the state of the bridge and its servers. The state has counters and
// times, so the code that changes the state does not record marks. Its methods may be called concurrently.
type Marks struct {
	mu      sync.Mutex // guards the rest
	last    logs.Ring[Mark]
	of      map[string]gateway.Sample // by server: the last state
	reloads reload.Counts
	drained time.Time // when the bridge was drained; zero if the bridge is not drained
}

// NewMarks returns Marks without a mark.
func NewMarks() *Marks {
	return &Marks{last: logs.NewRing[Mark](maxMarks), of: map[string]gateway.Sample{}}
}

// add adds a mark that Look or LookAtBridge found. at is when the event happened; zero means now. The caller holds
// m.mu.
func (m *Marks) add(now, at time.Time, kind, server, text string) {
	if at.IsZero() {
		at = now
	}
	m.last.Add(Mark{at.UnixMilli(), kind, server, text, now})
}

// Look compares the state of a server with the one at the last Look, and adds the marks that explain the difference.
func (m *Marks) Look(now time.Time, server string, is gateway.Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.of[server]
	m.of[server] = is
	if is.Health.Restarts < was.Health.Restarts || is.Breaker.Trips < was.Breaker.Trips {
		was = gateway.Sample{Drained: was.Drained} // the server got other settings, and counts from zero again
	}
	switch failure := is.Health.Failure; {
	case failure != nil && was.Health.Failure == nil:
		m.add(now, is.Health.Since, "failing", server, bridge.Brief(failure))
	case failure == nil && was.Health.Failure != nil:
		m.add(now, time.Time{}, "working", server, "")
	}
	if is.Health.Restarts > was.Health.Restarts && is.Health.Opened > was.Health.Opened {
		text := ""
		if is.Health.Last != nil {
			text = bridge.Brief(is.Health.Last)
		}
		m.add(now, time.Time{}, "restart", server, text)
	}
	open, before := is.Breaker.Why != nil, was.Breaker.Why != nil
	if open && !before {
		m.add(now, is.Breaker.Since, "breaker_open", server, bridge.Brief(is.Breaker.Why))
	} else if !open && !before && is.Breaker.Trips > was.Breaker.Trips {
		m.add(now, time.Time{}, "breaker_open", server, "for a short time")
		before = true
	}
	if before && !open {
		m.add(now, time.Time{}, "breaker_closed", server, "")
	}
	if is.Drained != nil && was.Drained == nil {
		m.add(now, is.Drained.Since, "drain", server, by(is.Drained.By))
	} else if is.Drained == nil && was.Drained != nil {
		m.add(now, time.Time{}, "resume", server, "")
	}
}

func by(principal string) string {
	if principal == "" {
		return ""
	}
	return "by " + principal
}

// LookAtBridge compares the state of the bridge with the one at the last LookAtBridge, and adds marks. since is when
// the bridge was drained, or zero. reloads is nil if the configuration is never reloaded. LookAtBridge forgets the
// servers that has rejects.
func (m *Marks) LookAtBridge(now, since time.Time, drainedBy string, reloads *reload.Reloader, has func(server string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.of, func(server string, _ gateway.Sample) bool { return !has(server) })
	if since != m.drained {
		if since.IsZero() {
			m.add(now, since, "resume", "", "")
		} else {
			m.add(now, since, "drain", "", by(drainedBy))
		}
		m.drained = since
	}
	if reloads == nil {
		return
	}
	is := reloads.Counts()
	if is.Succeeded > m.reloads.Succeeded {
		m.add(now, is.At, "reload", "", "the configuration was reloaded")
	}
	if is.Faulty > m.reloads.Faulty {
		text, at := reloads.Status().LastError, time.Time{}
		if text == "" {
			text = "a reload failed"
		}
		m.add(now, at, "reload", "", text)
	}
	m.reloads = is
}

// Since returns the marks that were found after from, the oldest first: the marks of the servers that of accepts, and
// with whole also the bridge's own.
func (m *Marks) Since(from time.Time, of func(server string) bool, whole bool) []Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []Mark{}
	m.last.Newest(func(one Mark) bool {
		if !one.found.After(from) {
			return false
		}
		if one.Server == "" && whole || one.Server != "" && of(one.Server) {
			out = append(out, one)
		}
		return true
	})
	slices.Reverse(out)
	return out
}

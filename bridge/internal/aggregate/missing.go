package aggregate

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// missing is a server that the client does not see now. Its JSON form is that of era.KeyMissing.
type missing struct {
	Server string     `json:"server"`
	Since  *time.Time `json:"since,omitempty"` // when it began to fail; nil if it does not fail
	Why    string     `json:"why"`             // for clients
}

// lacking returns the entry of the server in a list that lacks the server because of why.
func (m *member) lacking(why error) missing {
	one := missing{Server: m.s.Name, Why: "it answered with an error"}
	if e, ok := errors.AsType[*bridge.Error](why); ok {
		one.Why = e.Public
	} else if errors.Is(why, errStarting) || errors.Is(why, errSlow) {
		one.Why = why.Error()
	}
	if at := m.s.Since(); !at.IsZero() {
		at = at.Truncate(time.Second)
		one.Since = &at
	}
	return one
}

// lack records the servers that the client's list of tools lacks.
func (s *session) lack(all []missing) {
	if len(all) == 0 {
		s.lacking.Store(nil)
		return
	}
	s.lacking.Store(&all)
}

// Lacking calls f for each server that an open session's last list of tools lacks. why is for clients. Stateless clients
// of one principal count as one session.
func (a *Aggregate) Lacking(f func(server, why string)) {
	a.mu.Lock()
	open := slices.Collect(maps.Keys(a.open))
	a.mu.Unlock()
	for _, s := range open {
		if all := s.lacking.Load(); all != nil {
			for _, one := range *all {
				f(one.Server, one.Why)
			}
		}
	}
}

// maxNear bounds the names that an error suggests.
const maxNear = 3

// unknown returns the error about a tool or prompt that no server of the caller has. For a server's own name, the error
// has the names with prefixes. It also names the servers that are missing from lists, which may have the item.
func (s *session) unknown(k list.Kind, name, principal string) *jsonrpc.Message {
	var near, absent []string
	for _, m := range s.members() {
		if external := m.external(k)(name); m.catalog.has(k, external) && m.s.Shows(k, name, principal) && s.a.o.Shows(k, external) && len(near) < maxNear {
			near = append(near, external)
		}
		if m.leftOut() != nil {
			absent = append(absent, m.s.Name)
		}
	}
	hint := ""
	if len(near) > 0 {
		hint += ": did you mean " + strings.Join(near, " or ") + "? At the address of several servers, names begin with their server's prefix"
	} else if len(absent) > 0 {
		hint += " (these servers do not work now: " + strings.Join(absent, ", ") + ")"
	}
	return k.Unknown(name + hint)
}

// has reports whether the server lists an item under an external name.
func (c *catalog) has(k list.Kind, external string) bool {
	_, has := c.internal(k, external)
	return has
}

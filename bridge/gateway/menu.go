package gateway

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/metatools"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/script"
)

// ToolsMode selects how an address offers its tools.
type ToolsMode string

// ToolsAll, ToolsSearch and ToolsCode are the values of ToolsMode.
const (
	ToolsAll    ToolsMode = "all"    // the list has all tools
	ToolsSearch ToolsMode = "search" // the list has only meta tools, which find and call all other tools
	ToolsCode   ToolsMode = "code"   // as ToolsSearch, but scripts call the tools; without Options.Scripts it is ToolsSearch
)

// ToolsModeOf returns the mode that the parameter tools in the query of a client's URL requests, or "" without this
// parameter.
func ToolsModeOf(query url.Values) (ToolsMode, error) {
	mode := ToolsMode(query.Get("tools"))
	if mode != "" && mode != ToolsAll && !mode.finds() {
		return "", fmt.Errorf("tools=%.20s in the URL is unknown: use %s, %s or %s, or leave it out", mode, ToolsAll, ToolsSearch, ToolsCode)
	}
	return mode, nil
}

// finds reports whether clients find tools by search.
func (t ToolsMode) finds() bool { return t == ToolsSearch || t == ToolsCode }

// Listing decides how an address offers its tools.
type Listing struct {
	// ToolsMode is ToolsAll, or ToolsSearch for a list with only the tools that find and call other tools. For one
	// server, empty means the server's own mode. For all servers together, empty means that the list has the tools of
	// the servers whose mode is ToolsAll, and search finds the others. A client can choose with tools=all or
	// tools=search in its URL.
	ToolsMode ToolsMode `yaml:"tools_mode" effect:"live" one_of:"all search code"`
	// Always are patterns for tools that the list has even with ToolsSearch, by the names that clients see there.
	// Default: none.
	Always []string `yaml:"always" effect:"live"`
}

// address is the place where a client uses tools.
type address struct {
	name      string    // name of the server or group; empty means all servers together, or the only server
	at        *server   // nil for several servers together
	mode      ToolsMode // mode that the client requests; empty if it requests none
	principal string
}

// mode returns how the server's own address offers its tools. decided is false while the mode depends on a document
// that is not read yet.
func (s *server) mode() (mode ToolsMode, decided bool) {
	if mode = s.offered.Load().ToolsMode; mode != "" {
		return mode, true
	}
	mode, decided = ToolsAll, true
	if a, ok := s.o.Adapter.(bridge.OffersSearch); ok {
		var search bool
		if search, decided = a.OffersSearch(); search {
			mode = ToolsSearch
		}
	}
	return mode, decided
}

// finds reports whether clients find the server's tools by search.
func (s *server) finds() bool {
	mode, _ := s.mode()
	return mode.finds()
}

// finds reports whether clients find the tools at an address by search. Access rules and the session must get the same
// result, so it depends only on the current table.
func (g *gateway) finds(a address) bool {
	t := g.table.Load()
	mode, at, p := a.mode, t.at(a.name), t.groups[a.name]
	if p != nil {
		mode = cmp.Or(mode, p.now.Load().ToolsMode)
	}
	switch {
	case mode != "":
		return mode.finds()
	case at != nil:
		return at.finds()
	}
	return p != nil && slices.ContainsFunc(*p.servers.Load(), func(s *server) bool { return s.finds() && s.filter.Serves(a.principal) })
}

// codes reports whether scripts call the tools at an address. Like finds, it depends only on the current table.
func (g *gateway) codes(a address) bool {
	if g.scripts == nil {
		return false
	}
	t := g.table.Load()
	mode, at, p := a.mode, t.at(a.name), t.groups[a.name]
	if p != nil {
		mode = cmp.Or(mode, p.now.Load().ToolsMode)
	}
	if mode == "" && at != nil {
		mode, _ = at.mode()
	}
	return mode == ToolsCode
}

// menu returns how an address offers its tools, or nil if the list has all of them.
func (g *gateway) menu(a address) *metatools.Menu {
	if !g.finds(a) {
		return nil
	}
	t := g.table.Load()
	m, p := &metatools.Menu{Indexes: g.indexes, Info: g.info}, t.groups[a.name]
	if g.codes(a) {
		m.Scripts, m.Quota = g.scripts, g.quota
	}
	if s := a.at; s != nil {
		m.Servers, m.Always = []string{s.o.Name}, s.offered.Load().Always
		if p != nil && p.now.Load().ToolsMode != "" {
			m.Always = p.now.Load().Always
		}
		if _, decided := s.mode(); a.mode == "" && !decided {
			m.Finds, m.Owner = func(string) bool { return s.finds() }, func(string) string { return s.o.Name }
		}
		return m
	}
	if p == nil { // it was removed
		return nil
	}
	for _, s := range *p.servers.Load() {
		if s.filter.Serves(a.principal) {
			m.Servers = append(m.Servers, s.o.Name)
		}
	}
	listing := p.now.Load().Listing
	m.Always, m.Owner = listing.Always, func(tool string) string { return p.aggregate.Owner(a.principal, tool) }
	if cmp.Or(a.mode, listing.ToolsMode) == "" {
		m.Finds = func(server string) bool { s := t.named[server]; return s != nil && s.finds() }
	}
	return m
}

// offered returns up, changed so that requests about tools see the tools as the address offers them. All other requests
// go to up itself.
func (g *gateway) offered(up bridge.Upstream, m *jsonrpc.Message, through string, a address) bridge.Upstream {
	switch {
	case through != "", metatools.Answers(m), metatools.ReadsResult(m):
	default:
		return up
	}
	if menu := g.menu(a); menu != nil {
		up = menu.Wrap(up)
	}
	if g.cuts(a) {
		up = metatools.Reading(up, g.results, g.info)
	}
	return up
}

// cuts reports whether a server at an address may cut results, so that callers read the rest from the bridge.
func (g *gateway) cuts(a address) bool {
	t := g.table.Load()
	if s := t.at(a.name); s != nil {
		return s.results.On()
	}
	p := t.groups[a.name]
	return p != nil && slices.ContainsFunc(*p.servers.Load(), func(s *server) bool { return s.results.On() })
}

// unwrapped unwraps calls of meta tools. If m calls a meta tool of the address, it returns the call that m names, and
// the name of the meta tool. Otherwise, it returns m. If m cannot be read, no is the answer.
func (g *gateway) unwrapped(m *jsonrpc.Message, from *bridge.Caller, a address) (inner *jsonrpc.Message, through string, no *jsonrpc.Message) {
	if m.Method != "tools/call" || !metatools.Calls(m.Name()) || !g.finds(a) {
		return m, "", nil
	}
	inner, through, fault := metatools.Unwrap(m)
	if fault != "" {
		no = era.Refused(from.Modern(), m, fault)
		no.ID = slices.Clone(m.ID)
		return m, "", no
	}
	if inner.Name() == metatools.SearchTools || inner.Name() == script.Tool && g.codes(a) || metatools.ReadsResult(inner) && g.cuts(a) {
		through = "" // the bridge's own tools need no other to call them
	}
	return inner, through, nil
}

func (g *gateway) Resolve(server, principal string, mode ToolsMode, m *jsonrpc.Message) *jsonrpc.Message {
	a := address{
		name:      server,
		mode:      mode,
		principal: principal,
	}
	inner, _, no := g.unwrapped(m, &bridge.Caller{}, a)
	if no == nil && inner.Method == "tools/call" && inner.Name() == script.Tool && g.codes(a) {
		return &jsonrpc.Message{ID: m.ID, Method: "tools/call"} // a script may call each tool
	}
	own := inner.Method == "tools/call" && inner.Name() == metatools.SearchTools && g.finds(a) || metatools.ReadsResult(inner) && g.cuts(a)
	if no != nil || own {
		return &jsonrpc.Message{ID: m.ID, Method: list.Tools.Method()}
	}
	return inner
}

// constant reports whether the list of tools at the address stays the same when the servers' lists change.
func (g *gateway) constant(a address) bool {
	m := g.menu(a)
	return m != nil && m.Finds == nil && len(m.Always) == 0
}

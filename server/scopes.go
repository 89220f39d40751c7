package server

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/adapters/downstream"
	"github.com/mcp-bridge/bridge/internal/adapters/rest"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/claim"
	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/era"
	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/list/filter"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/jsonrpc"
)

// claimed is what a configuration wants to know of tokens. It is not changed: another
// takes its place.
type claimed struct {
	of      [2]*config.Config // the one that counts; and nil, or the one that is about to
	claims  []string          // that servers are told
	headers []string          // in which they are told these
	scoped  bool              // calls of some server need scopes
	known   map[string]bool   // the scopes that the configuration names
	former  map[string][]names
}

// names are how a server's settings have named things.
type names struct{ tools, prompts map[string]string }

// maxFormer is of how many former settings of a server the names are known.
const maxFormer = 8

// claimed returns what the configuration wants to know that counts now.
func (s *Server) claimed() *claimed {
	// What is about to count is looked at first: it counts before the other does not.
	of := [2]*config.Config{1: s.coming.Load()}
	of[0] = s.c()
	was := s.wanted.Load()
	if was != nil && was.of == of {
		return was
	}
	now := &claimed{of: of, known: map[string]bool{}, former: map[string][]names{}}
	if was != nil { // a server with former settings goes on for its sessions
		now.claims, now.headers, now.former = slices.Clone(was.claims), slices.Clone(was.headers), maps.Clone(was.former)
	}
	for _, c := range of {
		if c != nil {
			now.take(c)
		}
	}
	s.wanted.Store(now)
	return now
}

// take adds what a configuration wants to know.
func (now *claimed) take(c *config.Config) {
	know := func(scopes []string) {
		for _, one := range scopes {
			now.known[one] = true
		}
	}
	for i := range c.OAuth {
		know(c.OAuth[i].Scopes)
		for name, implied := range c.OAuth[i].Implies {
			know(append([]string{name}, implied...))
		}
	}
	for i := range c.Servers {
		one := &c.Servers[i]
		its := names{one.Tools.Rename, one.Prompts.Rename}
		had := now.former[one.Name]
		if !slices.ContainsFunc(had, func(n names) bool { return maps.Equal(n.tools, its.tools) && maps.Equal(n.prompts, its.prompts) }) {
			now.former[one.Name] = append(had[max(0, len(had)-maxFormer):len(had):len(had)], its)
		}
		for _, name := range one.Identity {
			if !slices.Contains(now.claims, name) {
				now.claims = append(now.claims, name)
				now.headers = append(now.headers, claim.Header(name))
			}
		}
		know(one.Scopes.All)
		now.scoped = now.scoped || len(one.Scopes.All) > 0
		for _, by := range []map[string]config.Words{one.Scopes.Tools, one.Scopes.Prompts, one.Scopes.Resources} {
			for _, scopes := range by {
				now.scoped = true
				know(scopes)
			}
		}
	}
}

// identify puts into a request's headers what servers are told of its caller, in the
// place of what the client has written there (I-057), and into its context what it is for.
func (s *Server) identify(r *http.Request, to place) *http.Request {
	if !s.keys.Tokens() {
		return r
	}
	claim.Strip(r.Header)
	want := s.claimed()
	if want.scoped {
		r = r.WithContext(context.WithValue(r.Context(), placeKey{}, to))
	}
	t := auth.TokenOf(r.Context())
	if t == nil {
		return r
	}
	for i, name := range want.claims {
		if text := claim.Text(token.At(t.Claims, name)); text != "" {
			r.Header[want.headers[i]] = []string{text}
		}
	}
	return r
}

// need is what the messages of a request need, as scopes.
type need struct {
	grant  func(server, tool string) bool // whether the rule of the caller lets it use a server, or a tool of it
	former map[string][]names
	all    []string
}

// add adds scopes that are not among them yet.
func (n *need) add(scopes []string) {
	for _, one := range scopes {
		if !slices.Contains(n.all, one) {
			n.all = append(n.all, one)
		}
	}
}

// subject is what a message is about.
type subject struct {
	by       func(*config.Scopes) map[string]config.Words
	name     string // or the URI
	doubtful bool   // it is whatever the server takes it for
	located  bool   // it is a URI
	tool     bool
	args     []byte // of a tool
}

// matches reports whether a pattern is about it, in whatever spelling of a URI.
func (a *subject) matches(pattern, name string) bool {
	switch {
	case a.doubtful:
		return true
	case a.located:
		return !(&filter.Rules{Deny: []string{pattern}}).PassesURI(name)
	}
	return glob.Match(pattern, name)
}

// match adds what the patterns of a server ask for that fit the subject, which has that
// name there.
func (n *need) match(c *config.Server, a *subject, name string) {
	if name == "" {
		name = a.name
	}
	if a.tool && !a.doubtful && !n.grant(c.Name, name) {
		return // it is hidden from the caller, whatever its scopes
	}
	if a.tool && c.Rest != nil && name == shownAs(c.Tools.Rename, rest.CallTool) {
		n.match(c, a.called(c), "")
	}
	called := []string{name}
	for _, was := range n.former[c.Name] { // sessions keep the names that they have begun with
		switch {
		case a.tool:
			called = append(called, shownAs(c.Tools.Rename, ownOf(was.tools, name)))
		case !a.located:
			called = append(called, shownAs(c.Prompts.Rename, ownOf(was.prompts, name)))
		}
	}
	for pattern, scopes := range a.by(&c.Scopes) {
		if slices.ContainsFunc(called, func(name string) bool { return a.matches(pattern, name) }) {
			n.add(scopes)
		}
	}
}

// shownAs returns the name under which clients see something of a server.
func shownAs(renamed map[string]string, own string) string {
	if name, is := renamed[own]; is {
		return name
	}
	return own
}

// ownOf returns the name that a server itself has for what clients see under that one.
func ownOf(renamed map[string]string, name string) string {
	for own, shown := range renamed {
		if shown == name {
			return own
		}
	}
	return name
}

// called returns the operation of an HTTP API that a tool is to call.
func (a *subject) called(c *config.Server) *subject {
	times, own := 0, ""
	rawjson.Each(a.args, func(name, value []byte) {
		if string(name) == "id" {
			times++
			own, _ = rawjson.Text(value)
		}
	})
	return &subject{by: a.by, name: shownAs(c.Tools.Rename, own), doubtful: times != 1 || own == "", tool: true}
}

// subjects returns what a message is about that may need scopes.
func subjects(m *jsonrpc.Message) []subject {
	tools := func(s *config.Scopes) map[string]config.Words { return s.Tools }
	prompts := func(s *config.Scopes) map[string]config.Words { return s.Prompts }
	resources := func(s *config.Scopes) map[string]config.Words { return s.Resources }
	switch m.Method {
	case "tools/call":
		return []subject{{by: tools, name: m.Name(), doubtful: m.Doubtful() || m.Name() == "", tool: true, args: []byte(gjson.GetBytes(m.Params, "arguments").Raw)}}
	case "prompts/get":
		return []subject{{by: prompts, name: m.Name(), doubtful: m.Doubtful() || m.Name() == ""}}
	case "resources/read", "resources/subscribe":
		return []subject{{by: resources, name: m.URI(), doubtful: m.Doubtful() || m.URI() == "", located: true}}
	case era.Complete:
		ref, no := list.ReferenceOf(m)
		switch {
		case no != nil: // it can be about anything
			return []subject{{by: prompts, doubtful: true}, {by: resources, doubtful: true, located: true}}
		case ref.URI != "":
			return []subject{{by: resources, name: ref.URI, located: true}}
		}
		return []subject{{by: prompts, name: ref.Name, doubtful: ref.Name == ""}}
	case era.Listen:
		wants, fault := list.ReadListen(m.Params)
		all := make([]subject, 0, len(wants.URIs))
		for _, uri := range wants.URIs {
			all = append(all, subject{by: resources, name: uri, located: true})
		}
		if fault != "" {
			all = append(all, subject{by: resources, doubtful: true, located: true})
		}
		return all
	}
	return nil
}

// of adds what a message needs at the own address of a server.
func (n *need) of(c *config.Server, m *jsonrpc.Message) {
	n.add(c.Scopes.All)
	for _, about := range subjects(m) {
		n.match(c, &about, about.name)
	}
}

// longest is how much of a prefix surely begins a name that was cut: see externalName in
// internal/aggregate.
const longest = 55

// ofAll adds what a message needs where all servers are one: what it needs at each server
// that it may go to. As a rule the prefix of a name leaves one.
func (n *need) ofAll(servers []config.Server, m *jsonrpc.Message) {
	var tasks []string
	switch {
	case strings.HasPrefix(m.Method, "tasks/") && m.Method != "tasks/list":
		tasks = []string{gjson.GetBytes(m.Params, "taskId").Str}
	case m.Method == era.Listen:
		wants, _ := list.ReadListen(m.Params) // a fault makes it a doubtful one
		tasks = wants.Tasks
	}
	about := subjects(m)
	prefixed := map[string]bool{} // names that begin with the prefix of a server
	for i := range servers {
		for _, a := range about {
			prefixed[a.name] = prefixed[a.name] || begins(&servers[i], a.name)
		}
	}
	for i := range servers {
		c := &servers[i]
		if !n.grant(c.Name, "") {
			continue // to the caller it does not exist
		}
		if slices.ContainsFunc(tasks, func(id string) bool { return ofTask(servers, id) == c.Name || ofTask(servers, id) == "" }) {
			n.add(c.Scopes.All)
		}
		for _, a := range about {
			// A session that began when there was one server goes on with its names.
			if a.located || a.doubtful || !prefixed[a.name] {
				n.add(c.Scopes.All)
				n.match(c, &a, a.name)
				continue
			}
			for _, prefix := range []string{c.Prefix, c.Name + "__"} {
				own, whole := strings.CutPrefix(a.name, prefix)
				if whole {
					n.add(c.Scopes.All)
					n.match(c, &a, own)
				}
				if shortened(a.name) && strings.HasPrefix(a.name, prefix[:min(len(prefix), longest)]) {
					any := a
					any.doubtful = true // its name is not known
					n.add(c.Scopes.All)
					n.match(c, &any, "")
				}
			}
		}
	}
}

// ofTask returns the name of the server whose task that is, where all are one; empty for one
// that may be anybody's, such as that of a session that began when there was one server.
func ofTask(servers []config.Server, id string) string {
	name, _, _ := strings.Cut(id, ":")
	if slices.ContainsFunc(servers, func(c config.Server) bool { return c.Name == name }) {
		return name
	}
	return ""
}

// begins reports whether a name may be that of something of a server, where all are one.
func begins(c *config.Server, name string) bool {
	for _, prefix := range []string{c.Prefix, c.Name + "__"} {
		if strings.HasPrefix(name, prefix) || shortened(name) && strings.HasPrefix(name, prefix[:min(len(prefix), longest)]) {
			return true
		}
	}
	return false
}

// shortened reports whether a name looks as if it had been too long, or had characters
// that clients do not take: such a name ends with a hash (see externalName in
// internal/aggregate).
func shortened(name string) bool {
	i := len(name) - 9
	return i > 0 && name[i] == '_' && strings.Trim(name[i+1:], "0123456789abcdef") == ""
}

// needs returns what the messages of a request need, and the ids of those that are to be
// answered. Without messages it is what the address needs.
func (s *Server) needs(server, principal string, messages []*jsonrpc.Message) (scopes []string, ids [][]byte) {
	g, ruled := s.grants.Of(principal)
	now := s.claimed()
	n := need{former: now.former, grant: func(server, tool string) bool {
		return ruled && g.Covers(server) && (tool == "" || g.Passes(tool))
	}}
	for _, m := range messages {
		if m.ID != nil && m.Method != "" {
			ids = append(ids, m.ID)
		}
	}
	for _, c := range now.of {
		if c != nil {
			n.at(server, c, messages)
		}
	}
	return n.all, ids
}

// at adds what the messages need by a configuration.
func (n *need) at(server string, c *config.Config, messages []*jsonrpc.Message) {
	all := server == ""
	if all && len(c.Servers) == 1 {
		server = c.Servers[0].Name // it is served as it is; a session may have begun when there were more
	}
	for i := range c.Servers {
		if c.Servers[i].Name == server {
			n.add(c.Servers[i].Scopes.All)
		}
	}
	for _, m := range messages {
		if all {
			n.ofAll(c.Servers, m)
		}
		for i := range c.Servers {
			if c.Servers[i].Name == server {
				n.of(&c.Servers[i], m)
			}
		}
	}
}

// placeKey is the key under which the context of a request has the place that it is for.
type placeKey struct{}

// screen answers a request whose token lacks a scope that it needs, and otherwise reports
// false (I-052 to I-055). body is that of a POST.
func (s *Server) screen(w http.ResponseWriter, r *http.Request, server string, body []byte) (answered bool) {
	t := auth.TokenOf(r.Context())
	if t == nil || !s.claimed().scoped {
		return false
	}
	var all []*jsonrpc.Message
	batch := jsonrpc.IsBatch(body)
	parts := [][]byte{body}
	if batch {
		parts, _ = jsonrpc.Split(body) // a fault is for whoever takes the messages
	}
	if len(parts) > downstream.MaxBatch {
		return false // it is refused as a whole
	}
	for _, part := range parts {
		if m, err := jsonrpc.ParseUTF8(part); err == nil {
			all = append(all, m)
		}
	}
	principal := auth.Principal(r.Context())
	wanted, ids := s.needs(server, principal, all)
	slices.Sort(wanted)
	missing := without(wanted, t.Scopes)
	if len(missing) == 0 {
		s.elevations.came(s.log, principal, t)
		return false
	}
	if !era.IsModern(r.Header.Get("Mcp-Protocol-Version")) { // these ask for what they are told, and give up the rest
		for _, has := range t.Scopes {
			if s.claimed().known[has] && !slices.Contains(wanted, has) {
				wanted = append(wanted, has)
			}
		}
	}
	slices.Sort(wanted)
	s.keys.NoteScope()
	s.elevations.asked(s.log, principal, server, wanted, missing)
	s.insufficient(w, r, missing, wanted, ids, batch)
	return true
}

// without returns the texts that are not among sorted ones.
func without(texts, sorted []string) (rest []string) {
	for _, one := range texts {
		if _, has := slices.BinarySearch(sorted, one); !has {
			rest = append(rest, one)
		}
	}
	return rest
}

// insufficient answers a request that needs more scopes.
func (s *Server) insufficient(w http.ResponseWriter, r *http.Request, missing, wanted []string, ids [][]byte, batch bool) {
	to, _ := r.Context().Value(placeKey{}).(place)
	why := "this needs the scope " + strings.Join(missing, " ")
	text := challenge + `, error="insufficient_scope", error_description="` + why + `"`
	if id := s.resource(r, to); id.Root != "" {
		text += `, resource_metadata="` + id.Root + wellKnown + id.Path + `"`
	}
	w.Header().Set("WWW-Authenticate", text+`, scope="`+strings.Join(wanted, " ")+`"`)
	answer := func(id []byte) []byte {
		return jsonrpc.NewError(id, jsonrpc.CodeInvalidRequest, why, []byte(`{"bridge":"insufficient_scope"}`)).Append(nil, id, nil)
	}
	var body []byte
	switch {
	case batch && len(ids) > 0:
		for _, id := range ids {
			body = append(append(body, ','), answer(id)...)
		}
		body = append(body, ']')
		body[0] = '['
	case len(ids) == 1:
		body = answer(ids[0])
	default:
		body = answer(nil)
	}
	data(w, http.StatusForbidden, "application/json", body)
}

// elevations log who is asked for more scopes, and who comes back with them (I-060). The
// zero value is ready for use.
type elevations struct {
	mu   sync.Mutex // guards the rest
	open *simplelru.LRU[string, []string]
}

// maxElevations is of how many callers it is known that they were asked.
const maxElevations = 1000

func (e *elevations) asked(log *slog.Logger, principal, server string, wanted, missing []string) {
	e.mu.Lock()
	if e.open == nil {
		e.open, _ = simplelru.NewLRU[string, []string](maxElevations, nil) // the size is positive
	}
	was, again := e.open.Get(principal)
	e.open.Add(principal, wanted)
	e.mu.Unlock()
	if !again || !slices.Equal(was, wanted) {
		log.Info("a caller was asked for more scopes", "principal", principal, "server", server, "missing", strings.Join(missing, " "), "asked_for", strings.Join(wanted, " "))
	}
}

// came notes the token of a caller whose scopes suffice.
func (e *elevations) came(log *slog.Logger, principal string, t *token.Token) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == nil {
		return
	}
	wanted, was := e.open.Peek(principal)
	if !was || len(without(wanted, t.Scopes)) > 0 {
		return
	}
	e.open.Remove(principal)
	log.Info("a caller has come back with more scopes", "principal", principal, "scopes", strings.Join(wanted, " "))
}

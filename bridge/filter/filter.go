// Package filter selects the parts of a server that clients see and use. An operator allows, denies, renames and
// describes items ([Filter]). A principal may use the items of its grant ([Grant]), and its own tasks ([Tasks]). A
// client that asks for a hidden item gets the answer for an item that does not exist, under every spelling of the
// item's URI.
//
// The package has no connections, and starts no goroutine.
package filter

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Filter hides and changes the items of one server for its clients. With access rules it also limits each principal to
// its grant.
type Filter struct {
	server string
	now    atomic.Pointer[rules] // never nil
	grants *Grants               // nil without access rules
}

// rules are the rules of a Filter by kind. They are immutable: Set replaces them.
type rules [list.Kinds]*compiled

// none is the rules that show all items unchanged.
var none = &rules{}

// New returns the filter of the server of that name. grants are the grants for all servers; nil means that there are no
// access rules.
func New(server string, l Lists, grants *Grants) *Filter {
	f := &Filter{server: server, grants: grants}
	f.now.Store(none)
	f.Set(l)
	return f
}

// Set replaces the rules for the calls that follow. It returns the kinds of lists that l changes, so that
// the caller can notify clients.
func (f *Filter) Set(l Lists) (changed []list.Kind) {
	c := compile(l.Resources, true)
	next := &rules{list.Tools: compile(l.Tools, false), list.Prompts: compile(l.Prompts, false), list.Resources: c, list.Templates: c}
	if *next == *none {
		next = none
	}
	was := f.now.Swap(next)
	for _, k := range list.Announced {
		if !reflect.DeepEqual(was[k], next[k]) {
			changed = append(changed, k)
		}
	}
	return changed
}

// Wrap returns up with hidden and changed items. up names items by the server's own names.
func (f *Filter) Wrap(up bridge.Upstream) bridge.Upstream { return &filtered{up, f} }

// Client returns a Client that passes everything to to, except notifications about hidden resources.
func (f *Filter) Client(to bridge.Client) bridge.Client { return &filteredClient{to, f} }

// Shows reports whether a principal may use the tool or prompt with that name. The name is the one that clients see.
// The caller has checked that the principal may use the server.
func (f *Filter) Shows(k list.Kind, name, principal string) bool {
	if _, ok := f.now.Load()[k].internal(name); !ok {
		return false
	}
	g, known := f.grants.Of(principal)
	return f.grants == nil || known && (k != list.Tools || g.Passes(name))
}

// compiled are rules with the lookup tables that calls need. nil shows all items unchanged.
type compiled struct {
	Rules
	uris  bool              // clients name an item by its URI, so Rename changes only the name in lists
	names map[string]string // the server's names by the names that clients use; empty if uris
}

func compile(r Rules, uris bool) *compiled {
	if len(r.Allow)+len(r.Deny)+len(r.Rename)+len(r.Override) == 0 && !r.InlineRefs {
		return nil
	}
	c := &compiled{
		Rules: r,
		uris:  uris,
		names: map[string]string{},
	}
	if !uris {
		for internal, external := range r.Rename {
			c.names[external] = internal
		}
	}
	return c
}

// passes reports whether Allow and Deny show the item with that name or URI. The name is the server's.
func (c *compiled) passes(internal string) bool {
	if c == nil {
		return true
	}
	if c.uris {
		return c.PassesURI(internal)
	}
	return c.Passes(internal)
}

// external returns the name that clients use for an item. It reports false if clients do not see the item: the item is
// hidden, or another item was renamed to its name.
func (c *compiled) external(internal string) (string, bool) {
	if !c.passes(internal) {
		return "", false
	}
	if c == nil || c.uris {
		return internal, true
	}
	if name, ok := c.Rename[internal]; ok {
		return name, true
	}
	_, taken := c.names[internal]
	return internal, !taken
}

// internal returns the server's name for the item that clients call by the name external. It reports false if clients
// see no such item.
func (c *compiled) internal(external string) (string, bool) {
	if c == nil || c.uris {
		return external, c.passes(external)
	}
	if internal, ok := c.names[external]; ok {
		return internal, c.passes(internal)
	}
	_, away := c.Rename[external]
	return external, !away && c.passes(external)
}

// describe returns an item of a list as clients see it, or nil if the item is hidden.
func (c *compiled) describe(ctx context.Context, item []byte, internal string) []byte {
	name, ok := c.external(internal)
	if !ok {
		return nil
	}
	if c.uris {
		if to, ok := c.Rename[internal]; ok {
			item = rawjson.SetFirst(item, "name", []byte(rawjson.Quote(to)))
		}
	} else if name != internal {
		item = rawjson.SetFirst(item, "name", []byte(rawjson.Quote(name)))
	}
	if c.InlineRefs {
		item = rawjson.Edit(item, func(name, value []byte) []byte {
			if n := string(name); n == "inputSchema" || n == "outputSchema" {
				return inlined(ctx, value)
			}
			return value
		})
	}
	o := c.Override[internal]
	if o.Title != nil {
		item = rawjson.SetFirst(item, "title", []byte(rawjson.Quote(*o.Title)))
	}
	if o.Description != nil {
		item = rawjson.SetFirst(item, "description", []byte(rawjson.Quote(*o.Description)))
	}
	if len(o.Annotations) > 0 {
		a := []byte(gjson.GetBytes(item, "annotations").Raw)
		for _, member := range slices.Sorted(maps.Keys(o.Annotations)) {
			if value := o.Annotations[member]; string(value) == "null" {
				a = rawjson.Delete(a, member)
			} else {
				a = rawjson.Set(a, member, value)
			}
		}
		if len(a) == 0 {
			a = []byte("{}")
		}
		item = rawjson.SetFirst(item, "annotations", a)
	}
	return item
}

// filtered is an Upstream with the rules of a Filter.
type filtered struct {
	bridge.Upstream
	f *Filter
}

// filteredClient is a Client that gets no notifications about hidden resources.
type filteredClient struct {
	bridge.Client
	f *Filter
}

func (f *filteredClient) Notify(m *jsonrpc.Message) {
	if m.Method != "notifications/resources/updated" || f.f.now.Load()[list.Resources].passes(m.URI()) {
		f.Client.Notify(m)
	}
}

// Call makes a call, unless the call is about a hidden item. The rules of the moment when a list arrives filter the
// list. So a client that requests a list at once when it is notified of new rules gets the list by the new rules.
func (f *filtered) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if k, ok := list.Of(r.Method); ok {
		m, err := f.Upstream.Call(ctx, r)
		if of := f.f.now.Load()[k]; err == nil && m.Error == nil && of != nil {
			m = k.Edit(m, func(item []byte, internal string) []byte { return of.describe(ctx, item, internal) })
		}
		return m, err
	}
	of := f.f.now.Load()
	if r.Method == era.Listen {
		return f.listen(ctx, r, of)
	}
	k, about := subject(r.Method)
	if !about || of[k] == nil && (r.Method != era.Complete || of[list.Templates] == nil) {
		return f.Upstream.Call(ctx, r)
	}
	m, no := of.admit(k, r)
	if no != nil {
		return no, nil
	}
	inner := *r
	inner.Message = m
	return f.Upstream.Call(ctx, &inner)
}

// listen makes a subscription that leaves out hidden resources.
func (f *filtered) listen(ctx context.Context, r *bridge.Request, of *rules) (*jsonrpc.Message, error) {
	inner := *r
	inner.Back = f.f.Client(r.Back)
	if of[list.Resources] == nil {
		return f.Upstream.Call(ctx, &inner)
	}
	params := r.Whole()
	wants, fault := subscribe.ReadListen(params)
	if fault != "" {
		return jsonrpc.InvalidParams(fault), nil
	}
	seen := slices.DeleteFunc(slices.Clone(wants.URIs), func(uri string) bool { return !of[list.Resources].passes(uri) })
	if len(seen) < len(wants.URIs) {
		inner.Message = subscribe.Narrowed(params, "resourceSubscriptions", seen)
	}
	return f.Upstream.Call(ctx, &inner)
}

// subject returns the kind of item that a request is about. For completion/complete it returns Prompts: admit finds out
// the kind.
func subject(method string) (list.Kind, bool) {
	switch method {
	case "tools/call":
		return list.Tools, true
	case "prompts/get":
		return list.Prompts, true
	case "resources/read", "resources/subscribe":
		return list.Resources, true
	case era.Complete:
		return list.Prompts, true
	}
	return 0, false
}

// admit returns the message for the server. If the item is hidden, admit returns the error message for the client
// instead, which is the one for an item that does not exist.
func (r *rules) admit(k list.Kind, request *bridge.Request) (*jsonrpc.Message, *jsonrpc.Message) {
	m := request.Message
	if m.Doubtful() {
		return nil, jsonrpc.InvalidParams(bridge.NameDoubtful)
	}
	if m.Method == era.Complete {
		return r.admitCompletion(request)
	}
	if k == list.Resources {
		if m.URI() == "" || !r[k].passes(m.URI()) {
			return nil, list.NoResource(request.From.Modern(), m.URI())
		}
		return m, nil
	}
	seen := m.Name()
	own, ok := r[k].internal(seen)
	switch {
	case !ok, seen == "": // some servers also accept a name that is no string: JavaScript takes ["a"] as "a"
		return nil, k.Unknown(seen)
	case own != seen:
		m = m.Renamed(own)
	}
	return m, nil
}

// admitCompletion is admit for completion/complete, which names its item in params.ref.
func (r *rules) admitCompletion(request *bridge.Request) (*jsonrpc.Message, *jsonrpc.Message) {
	ref, no := list.ReferenceOf(request.Message)
	if no != nil {
		return nil, no
	}
	if ref.URI != "" {
		if !r[list.Templates].passes(ref.URI) {
			return nil, list.NoResource(request.From.Modern(), ref.URI)
		}
		return ref.Located(), nil
	}
	own, ok := r[list.Prompts].internal(ref.Name)
	if !ok {
		return nil, list.Prompts.Unknown(ref.Name)
	}
	return ref.Named(own), nil
}

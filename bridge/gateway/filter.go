package gateway

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/glob"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// Filter chooses what clients see of one kind of a server's offers: its tools,
// its prompts, or its resources and templates. What they do not see they
// cannot use either. Patterns are matched against the server's own names, for
// resources against the URI, and for templates against the template; * stands
// for any text, ? for any character. The zero value lets everything through.
type Filter struct {
	Allow []string // when not empty, what matches none of these is hidden
	Deny  []string // what matches one of these is hidden; it wins over Allow
	// Rename gives names that clients see, by the server's own. For resources,
	// which are called by their URI, it changes the name that is shown.
	Rename map[string]string
	// Override changes how something is described, by the server's own name or
	// URI.
	Override map[string]Override
}

// Override changes how one tool, prompt or resource is described. What is nil
// stays as the server has it.
type Override struct {
	Title       *string
	Description *string
	// Annotations are members that replace those of the same name; null removes
	// one.
	Annotations map[string]json.RawMessage
}

// Shows reports whether clients see what the server calls own, which is no URI.
// They may not although it passes: its name may have been given to another.
func (f *Filter) Shows(own string) bool {
	_, ok := newSieve(*f, false).seen(own)
	return ok
}

func (f *Filter) zero() bool {
	return len(f.Allow)+len(f.Deny)+len(f.Rename)+len(f.Override) == 0
}

// Passes reports whether clients may see what the server calls own, which is no
// URI.
func (f *Filter) Passes(own string) bool {
	for _, p := range f.Deny {
		if glob.Match(p, own) {
			return false
		}
	}
	for _, p := range f.Allow {
		if glob.Match(p, own) {
			return true
		}
	}
	return len(f.Allow) == 0
}

// PassesURI is Passes for a URI, however it is spelled.
func (f *Filter) PassesURI(uri string) bool { return (&sieve{Filter: *f, uris: true}).passesURI(uri) }

// sieve is a filter that is ready for use. The nil sieve lets everything
// through as it is.
type sieve struct {
	Filter
	uris bool              // renaming is for show only
	own  map[string]string // the server's names by those that clients see
}

func newSieve(f Filter, uris bool) *sieve {
	if f.zero() {
		return nil
	}
	s := &sieve{Filter: f, uris: uris, own: map[string]string{}}
	if !uris {
		for own, seen := range f.Rename {
			s.own[seen] = own
		}
	}
	return s
}

// passes reports whether clients may see what has this name or URI.
func (s *sieve) passes(own string) bool {
	if s == nil {
		return true
	}
	if s.uris {
		return s.passesURI(own)
	}
	return s.Passes(own)
}

// seen returns the name under which clients see what the server calls own;
// false when they do not see it: hidden, or its name has been given to another.
func (s *sieve) seen(own string) (string, bool) {
	if !s.passes(own) {
		return "", false
	}
	if s == nil || s.uris {
		return own, true
	}
	if name, ok := s.Rename[own]; ok {
		return name, true
	}
	_, taken := s.own[own]
	return own, !taken
}

// meant returns the server's own name of what a client calls seen; false when
// clients see nothing of that name.
func (s *sieve) meant(seen string) (string, bool) {
	if s == nil || s.uris {
		return seen, s.passes(seen)
	}
	if own, ok := s.own[seen]; ok {
		return own, s.passes(own)
	}
	_, away := s.Rename[seen]
	return seen, !away && s.passes(seen)
}

// describe returns the item as clients see it, or nil.
func (s *sieve) describe(item []byte, own string) []byte {
	name, ok := s.seen(own)
	if !ok {
		return nil
	}
	if s.uris {
		if to, ok := s.Rename[own]; ok {
			item = rawjson.SetFirst(item, "name", []byte(rawjson.Quote(to)))
		}
	} else if name != own {
		item = rawjson.SetFirst(item, "name", []byte(rawjson.Quote(name)))
	}
	o := s.Override[own]
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

// sieves are the filters of one server, by kind.
type sieves [list.Kinds]*sieve

func newSieves(o *ServerOptions) sieves {
	r := newSieve(o.Resources, true)
	return sieves{list.Tools: newSieve(o.Tools, false), list.Prompts: newSieve(o.Prompts, false), list.Resources: r, list.Templates: r}
}

// filtered is an Upstream of which clients see a part, under names of the
// operator's choice.
type filtered struct {
	bridge.Upstream
	sieves *sieves
}

// screened is a Client that is not told of resources that it does not see.
type screened struct {
	bridge.Client
	resources *sieve
}

// Notify passes on a notification.
func (s *screened) Notify(n *jsonrpc.Message) {
	if n.Method != "notifications/resources/updated" || s.resources.passes(n.URI()) {
		s.Client.Notify(n)
	}
}

// Call makes a call, unless it is about what clients do not see.
func (f *filtered) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if k, ok := list.Of(r.Method); ok {
		a, err := f.Upstream.Call(ctx, r)
		if err != nil || a.Error != nil || f.sieves[k] == nil {
			return a, err
		}
		return k.Edit(a, f.sieves[k].describe), nil
	}
	if r.Method == era.Listen && f.sieves[list.Resources] != nil {
		return f.listen(ctx, r)
	}
	k, about := subject(r.Method)
	if !about || f.sieves[k] == nil && (r.Method != era.Complete || f.sieves[list.Templates] == nil) {
		return f.Upstream.Call(ctx, r)
	}
	m, no := f.admit(k, r)
	if no != nil {
		return no, nil
	}
	inner := *r
	inner.Message = m
	return f.Upstream.Call(ctx, &inner)
}

// listen serves a subscription without the resources that clients do not see.
func (f *filtered) listen(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	params := r.Whole()
	wants, fault := list.ReadWanted(params)
	if fault != "" {
		return jsonrpc.InvalidParams(fault), nil
	}
	inner := *r
	inner.Back = &screened{r.Back, f.sieves[list.Resources]}
	seen := slices.DeleteFunc(slices.Clone(wants.URIs), func(uri string) bool { return !f.sieves[list.Resources].passes(uri) })
	if len(seen) < len(wants.URIs) {
		inner.Message = list.Narrowed(params, "resourceSubscriptions", seen)
	}
	return f.Upstream.Call(ctx, &inner)
}

// subject returns the kind of what a request is about.
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

// admit returns the message as the server understands it, or the answer to one
// that is about what clients do not see: the same as if it did not exist.
func (f *filtered) admit(k list.Kind, r *bridge.Request) (*jsonrpc.Message, *jsonrpc.Message) {
	m := r.Message
	if m.Doubtful() {
		return nil, jsonrpc.InvalidParams(bridge.NameDoubtful)
	}
	if m.Method == era.Complete {
		return f.admitCompletion(r)
	}
	if k == list.Resources {
		if m.URI() == "" || !f.sieves[k].passes(m.URI()) {
			return nil, list.NoResource(r.From, m.URI())
		}
		return m, nil
	}
	seen := m.Name()
	own, ok := f.sieves[k].meant(seen)
	switch {
	case !ok, seen == "": // what is no text may still be a name to the server, as ["a"] is to JavaScript
		return nil, k.Unknown(seen)
	case own != seen:
		m = m.Renamed(own)
	}
	return m, nil
}

// admitCompletion is admit for completion/complete, whose subject stands deeper
// in the params.
func (f *filtered) admitCompletion(r *bridge.Request) (*jsonrpc.Message, *jsonrpc.Message) {
	ref, no := list.ReferenceOf(r.Message)
	if no != nil {
		return nil, no
	}
	if ref.URI != "" {
		if !f.sieves[list.Templates].passes(ref.URI) {
			return nil, list.NoResource(r.From, ref.URI)
		}
		return ref.Located(), nil
	}
	own, ok := f.sieves[list.Prompts].meant(ref.Name)
	if !ok {
		return nil, list.Prompts.Unknown(ref.Name)
	}
	return ref.Named(own), nil
}

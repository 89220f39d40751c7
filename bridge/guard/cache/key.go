package cache

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// key identifies the request of an answer, and says which callers may get the answer.
type key struct {
	options   *Options // options in force when the key was made
	text      string   // request, revisions, caller and forwarded values; bytes 0 to 2 separate the parts
	public    string   // text without the caller, for an answer that is public
	what      list.Kind
	uri       string // URI of the resource, for contents; otherwise empty
	paged     bool   // not the first page of a list
	principal string
	everybody bool    // the answer may go to other principals
	source    *Source // connection whose own list this is; nil for a list of all connections
	revision  string  // of the server
}

// key returns the key of a request to a server whose greeting is g. It reports false if the answer may depend on
// something that is not in the key, or must not be cached.
func (c *Cached) key(r *bridge.Request, what list.Kind, g *bridge.Greeting) (*key, bool) {
	o := c.cache.options.Load()
	if o.Off || g == nil || what >= list.Kinds && !g.Modern() || !knownMeta(r.Meta()) {
		return nil, false
	}
	var mem [512]byte
	text := append(mem[:0], r.Method...)
	text = append(append(text, 0), g.Revision...)
	from := c.from
	if g.Modern() { // each request to a modern server names its caller
		from = r.From
		text = append(append(text, 0), from.Revision...)
	}
	text = append(append(text, 0), from.Capabilities...)
	k := &key{
		options:   o,
		what:      what,
		principal: r.From.Principal,
		everybody: o.Shared && what < list.Kinds,
		revision:  g.Revision,
	}
	text = append(text, 0)
	bare := len(text)
	text, ok := appendParams(text, r)
	k.paged = what < list.Kinds && len(text) > bare
	public := len(text)
	if !k.everybody {
		text = append(append(text, 0), k.principal...)
		for _, f := range bridge.Lasting(c.cache.server.Forward) {
			for _, value := range c.from.Header[f.To] {
				text = append(append(append(append(text, 0), f.To...), ':'), value...)
			}
			for _, value := range f.Values(r.Header, r.Identity) {
				text = append(append(append(append(text, 1), f.To...), ':'), value...)
			}
		}
	}
	if !ok || len(text) > maxKey {
		return nil, false
	}
	k.text = string(text)
	k.public = k.text[:public]
	if what == contents {
		k.uri = r.URI()
	}
	if c.source.isApart(what) {
		k = k.of(c.source)
	}
	return k, true
}

// sameList reports whether k is for a page of the list that a caller with key o sees.
func (k *key) sameList(o *key) bool {
	return k.what == o.what && k.source == o.source && (k.everybody || k.principal == o.principal)
}

// of returns the key for the same page of the list that only the connection of s has.
func (k *key) of(s *Source) *key {
	own, mark := *k, strconv.FormatUint(s.id, 36)+"\x02"
	own.source, own.text, own.public = s, mark+k.text, mark+k.public
	return &own
}

// appendParams appends the params of a request to text, without _meta. It reports false if the request belongs to an
// exchange of questions and answers, or starts a task: its answer is for no other caller.
func appendParams(text []byte, r *bridge.Request) ([]byte, bool) {
	params := r.Params
	if r.Method == "resources/read" {
		params = r.Whole() // in the params of a list, only _meta may have been changed
	}
	ok := true
	rawjson.Walk(params, '{', func(start, value, end int) bool {
		switch string(rawjson.Unquote(params[start:rawjson.StringEnd(params, start)])) {
		case "inputResponses", "requestState", "task":
			ok = false
		case "_meta":
		default:
			text = append(append(text, params[start:end]...), ',')
		}
		return ok
	})
	return text, ok
}

// knownMeta reports whether _meta has no member on which the answer may depend. An unknown member may change the
// answer.
func knownMeta(meta []byte) bool {
	ok := true
	rawjson.Each(meta, func(name, _ []byte) {
		switch string(name) {
		case "progressToken", "traceparent", "tracestate", "baggage", era.KeyLane:
		default:
			ok = ok && strings.HasPrefix(string(name), era.Reserved)
		}
	})
	return ok
}

// impersonal returns the request of a fetch that callers share. It requests no progress, and has nothing of r's _meta.
// It shares no memory with r.
func (c *Cached) impersonal(r *bridge.Request) *bridge.Request {
	params := rawjson.Delete(bytes.Clone(r.Whole()), "_meta")
	m := jsonrpc.NewRequest(r.Method, params)
	if c.Server().Modern() {
		if len(params) == 0 {
			params = []byte("{}")
		}
		m = r.From.Request(r.Method, params)
	}
	return &bridge.Request{
		Message:  m,
		From:     r.From,
		Header:   r.Header.Clone(),
		Identity: r.Identity,
		Back:     bridge.Nobody{},
		Opened:   r.Opened,
	}
}

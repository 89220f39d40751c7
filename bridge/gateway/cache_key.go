package gateway

import (
	"bytes"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/lane"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// spot is where an answer is kept: what it is about, and who may get it. The
// parts of its key are apart by bytes that stand neither in JSON nor in headers.
type spot struct {
	key       string // all of the following, and what was asked
	public    string // the beginning of key, which is the key of what everybody may get
	head      int    // where in key that ends which is the same for all pages of a list
	what      list.Kind
	uri       string // of contents
	paged     bool   // it is not the first page
	principal string
	everybody bool    // other principals may get it, too
	origin    *origin // the only connection whose it is; nil when others share it
	revision  string  // of the server
}

// origin is a connection as the cache sees it: what was kept of it, and whether
// it may be what others are given, too. A connection that has said that its list
// has changed may have another one than others have (share: session), so that
// from then on its lists are its own. So are those of a connection whose list has
// pages: it need not know the cursors that another one has given.
//
// It is the observer of its lane. Of nil, that is where nothing is kept, nobody
// takes note.
type origin struct {
	c         *cache
	id        uint64
	principal string
	all       bool                    // principals share it
	said      [list.Kinds]atomic.Bool // that it has changed, or goes on; set with the cache's mu
	kept      map[string]*entry       // its own; guarded by the cache's mu
	open      int                     // 1 while it is open, 2 while it is exchanged; guarded by the cache's mu
}

var _ lane.Observer = (*origin)(nil)

// source returns the origin of a lane on behalf of from.
func (c *cache) source(from *bridge.Caller) *origin {
	if c == nil {
		return nil
	}
	return &origin{c: c, id: c.origins.Add(1), principal: from.Principal, all: c.r.share == ShareAll}
}

// differs reports whether what the connection lists is its own.
func (o *origin) differs(what list.Kind) bool {
	return o != nil && what < list.Kinds && o.said[what].Load()
}

// place returns where the answer to a request is kept, of a server that has said
// s. It reports false for a request that is nobody's but its sender's.
func (c *keeper) place(r *bridge.Request, what list.Kind, s *bridge.Greeting) (*spot, bool) {
	if s == nil || what >= list.Kinds && !s.Modern() || !impersonal(r.Meta()) {
		return nil, false
	}
	var mem [512]byte
	key := append(mem[:0], r.Method...)
	key = append(append(key, 0), s.Revision...)
	from := c.from
	if s.Modern() { // each request says who asks
		from = r.From
		key = append(append(key, 0), from.Revision...)
	}
	key = append(append(key, 0), from.Capabilities...)
	p := &spot{what: what, principal: r.From.Principal, everybody: c.cache.o.Shared && what < list.Kinds, revision: s.Revision}
	if o := c.origin; o.differs(what) {
		p.origin = o
		key = strconv.AppendUint(append(key, 2), o.id, 36)
	}
	p.head = len(key)
	key, ok := appendParams(append(key, 0), r)
	if !ok {
		return nil, false
	}
	p.paged = len(key) > p.head+1
	public := len(key)
	if !p.everybody {
		key = append(append(key, 0), p.principal...)
		for _, f := range c.cache.r.o.Forward {
			for _, value := range c.from.Header[f.To] {
				key = append(append(append(append(key, 0), f.To...), ':'), value...)
			}
			for _, value := range r.Header[f.From] {
				key = append(append(append(append(key, 1), f.To...), ':'), value...)
			}
		}
	}
	if len(key) > maxKey {
		return nil, false
	}
	p.key = string(key)
	p.public = p.key[:public]
	if what == contents {
		p.uri = r.URI()
	}
	return p, true
}

// owned returns the place of the same where only the connection's own is kept.
func (p *spot) owned(o *origin) *spot {
	mine := *p
	mark := string(strconv.AppendUint([]byte{2}, o.id, 36))
	mine.key = p.key[:p.head] + mark + p.key[p.head:]
	mine.public = mine.key[:len(p.public)+len(mark)]
	mine.head, mine.origin = p.head+len(mark), o
	return &mine
}

// appendParams appends the params of a request without _meta to key. It reports false
// for those of an exchange, which nobody else may get anything of. Of a
// request for a list nothing but _meta was changed on its way.
func appendParams(key []byte, r *bridge.Request) ([]byte, bool) {
	params := r.Params
	if r.Method == "resources/read" {
		params = r.Whole()
	} else if meta := r.Meta(); meta != nil && cap(params) >= cap(meta) {
		at := cap(params) - cap(meta)
		before, after := bytes.TrimSpace(params[:at]), bytes.TrimSpace(params[at+len(meta):])
		if string(before) == `{"_meta":` && string(after) == "}" {
			return key, true
		}
	}
	if len(params) == 0 || rawjson.IsEmpty(params) {
		return key, true
	}
	ok := true
	gjson.ParseBytes(params).ForEach(func(name, value gjson.Result) bool {
		switch name.Str {
		case "inputResponses", "requestState", "task":
			ok = false
		case "_meta":
		default:
			key = append(append(append(append(key, name.Raw...), ':'), value.Raw...), ',')
		}
		return ok
	})
	return key, ok
}

// impersonal reports whether a _meta has nothing that the answer may depend on, as far
// as can be told: what is not known may be anything.
func impersonal(meta []byte) bool {
	if meta == nil {
		return true
	}
	ok := true
	gjson.ParseBytes(meta).ForEach(func(name, _ gjson.Result) bool {
		switch name.Str {
		case "progressToken", "traceparent", "tracestate", "baggage", era.KeyLane:
		default:
			ok = strings.HasPrefix(name.Str, era.Reserved)
		}
		return ok
	})
	return ok
}

// fetching returns the request for what p is about as nobody's in particular: no
// progress is wanted, and it says nothing of who happened to be the first to
// ask.
func (c *keeper) fetching(r *bridge.Request, s *bridge.Greeting) *bridge.Request {
	m := r.Message
	if r.Meta() == nil && !s.Modern() {
		m = m.Clone()
	} else {
		params := rawjson.Delete(bytes.Clone(m.Whole()), "_meta") // r may not outlive this call
		if len(params) == 0 {
			params = []byte("{}")
		}
		if s.Modern() {
			m = r.From.Request(r.Method, params)
		} else {
			m = jsonrpc.NewRequest(r.Method, params)
		}
	}
	return &bridge.Request{Message: m, From: r.From, Header: r.Header.Clone(), Back: bridge.Nobody{}}
}

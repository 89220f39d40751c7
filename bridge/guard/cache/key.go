package cache

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// key is where an answer is kept: what it is about, and who may get it. The
// parts of its text are apart by bytes that stand neither in JSON nor in headers.
type key struct {
	o         *Options // that counted when it was asked
	text      string   // all of the following, and what was asked
	public    string   // the beginning of text, which is the text of what everybody may get
	head      int      // where in text that ends which is the same for all pages of a list
	what      list.Kind
	uri       string // of contents
	paged     bool   // it is not the first page
	principal string
	everybody bool    // other principals may get it, too
	source    *Source // the only connection whose it is; nil when others share it
	revision  string  // of the server
}

// key returns where the answer to a request is kept, of a server that has said
// s. It reports false for a request that is nobody's but its sender's.
func (u *Cached) key(r *bridge.Request, what list.Kind, s *bridge.Greeting) (*key, bool) {
	o := u.cache.o.Load()
	if o.Off || s == nil || what >= list.Kinds && !s.Modern() || !impersonal(r.Meta()) {
		return nil, false
	}
	var mem [512]byte
	text := append(mem[:0], r.Method...)
	text = append(append(text, 0), s.Revision...)
	from := u.from
	if s.Modern() { // each request says who asks
		from = r.From
		text = append(append(text, 0), from.Revision...)
	}
	text = append(append(text, 0), from.Capabilities...)
	p := &key{o: o, what: what, principal: r.From.Principal, everybody: o.Shared && what < list.Kinds, revision: s.Revision}
	if of := u.source; of.differs(what) {
		p.source = of
		text = strconv.AppendUint(append(text, 2), of.id, 36)
	}
	p.head = len(text)
	text, ok := appendParams(append(text, 0), r)
	if !ok {
		return nil, false
	}
	p.paged = len(text) > p.head+1
	public := len(text)
	if !p.everybody {
		text = append(append(text, 0), p.principal...)
		for _, f := range bridge.Lasting(u.cache.server.Forward) {
			for _, value := range u.from.Header[f.To] {
				text = append(append(append(append(text, 0), f.To...), ':'), value...)
			}
			for _, value := range f.Values(r.Header, r.Identity) {
				text = append(append(append(append(text, 1), f.To...), ':'), value...)
			}
		}
	}
	if len(text) > maxKey {
		return nil, false
	}
	p.text = string(text)
	p.public = p.text[:public]
	if what == contents {
		p.uri = r.URI()
	}
	return p, true
}

// owned returns the place of the same where only the connection's own is kept.
func (p *key) owned(o *Source) *key {
	mine := *p
	mark := string(strconv.AppendUint([]byte{2}, o.id, 36))
	mine.text = p.text[:p.head] + mark + p.text[p.head:]
	mine.public = mine.text[:len(p.public)+len(mark)]
	mine.head, mine.source = p.head+len(mark), o
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
func (u *Cached) fetching(r *bridge.Request, s *bridge.Greeting) *bridge.Request {
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
	return &bridge.Request{Message: m, From: r.From, Header: r.Header.Clone(), Identity: r.Identity, Back: bridge.Nobody{}, Opened: r.Opened}
}

package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc/rawjson"
	"github.com/mcp-bridge/bridge/bridge/list"
)

// cursor says where several servers' lists go on. For clients it is opaque.
type cursor struct {
	Kind list.Kind             `json:"k"`
	At   map[string]*list.Mark `json:"at"` // by the server's name
}

func (c *cursor) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// cursorOf reads the cursor of a request for a list; nil means the first page.
func cursorOf(k list.Kind, params []byte) (*cursor, bool) {
	given := gjson.GetBytes(params, "cursor")
	if !given.Exists() || given.Type == gjson.Null || given.Type == gjson.String && given.Str == "" {
		return nil, true
	}
	text, err := base64.RawURLEncoding.DecodeString(given.Str)
	if err != nil {
		return nil, false
	}
	var c cursor
	if err := json.Unmarshal(text, &c); err != nil || c.Kind != k || len(c.At) == 0 {
		return nil, false
	}
	for _, at := range c.At {
		if at == nil {
			return nil, false
		}
	}
	return &c, true
}

// list answers a request for a list with what all servers have: one page of
// each.
func (g *merge) list(ctx context.Context, k list.Kind, r *bridge.Request) (*jsonrpc.Message, error) {
	from, ok := cursorOf(k, r.Params)
	if !ok {
		return jsonrpc.InvalidParams("params.cursor is not one that was given for " + r.Method), nil
	}
	pages := make([]*jsonrpc.Message, len(g.members)) // by place
	known := make([][]byte, len(g.members))           // what a slow one listed last, by place
	var asked, absent []*member
	good := 0
	for _, m := range g.members {
		if from != nil {
			if from.At[m.r.o.Name] != nil {
				asked = append(asked, m)
			}
			continue
		}
		page, coming := m.takeLate(k)
		if page == nil && m.offers(k) && !m.leftOut() {
			if known[m.place] = m.lastKnown(k); known[m.place] != nil {
				good++
			}
		}
		switch {
		case page != nil:
			pages[m.place] = page
			good++
		case coming || !m.offers(k):
		case m.leftOut():
			absent = append(absent, m)
		default:
			asked = append(asked, m)
		}
	}
	if good+len(asked) == 0 { // an empty list would be the wrong answer
		asked = absent
	}
	params, header, caller, came := rawjson.Delete(bytes.Clone(r.Params), "cursor"), r.Header.Clone(), r.From, r.Call // r may not outlive this call
	awaited := make([]*late, len(g.members))                                                                          // by place
	began := time.Now()
	late, err := g.gather(ctx, asked, listPatience, gathering{
		needOne: true,
		slow:    func(m *member) bool { return from == nil && m.catalog.slow.is(k) },
		good:    good,
		do: func(ctx context.Context, m *member) error {
			params := params
			if from != nil {
				params = rawjson.Set(params, "cursor", []byte(rawjson.Quote(from.At[m.r.o.Name].Cursor)))
			}
			var err error
			pages[m.place], err = m.call(ctx, &bridge.Request{Message: jsonrpc.NewRequest(k.Method(), params), From: caller, Header: header, Call: came})
			if err == nil && from == nil {
				m.catalog.slow.took(k, time.Since(began))
			}
			return err
		},
		overdue: func(m *member) {
			if from == nil { // otherwise it is asked again for the same page
				awaited[m.place] = m.awaitPage(k)
				m.catalog.slow.took(k, max(time.Since(began), slowList+1)) // or it was slow before
			}
		},
		after: func(m *member, err error) {
			page := pages[m.place]
			if err != nil || page.Error != nil || from != nil {
				page.Release()
				page = nil
			}
			shown := known[m.place]
			if page != nil {
				result := resultOf(page)
				if m.awaits(k, awaited[m.place]) { // otherwise the list has changed since
					m.catalog.slow.keep(k, m.g.caller.Revision, result)
				}
				if bytes.Equal(result, shown) { // the client has it
					page.Release()
					page = nil
				}
			}
			if m.keepPage(k, awaited[m.place], page) || err != nil && shown != nil {
				g.rest.Notify(jsonrpc.NewNotification(k.Changed(), nil))
			}
			if err != nil {
				m.leaveOut(err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	for _, m := range asked {
		if !late[m] { // what it has said counts, or that it said nothing
			known[m.place] = nil
		}
	}
	return g.join(k, from, pages, known, late)
}

// takeLate returns the page that came too late for the last request, or says
// that it is still on its way.
func (m *member) takeLate(k list.Kind) (page *jsonrpc.Message, coming bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.late[k]
	switch {
	case l == nil:
		return nil, false
	case l.page == nil:
		return nil, true
	}
	m.late[k] = nil
	return l.page, false
}

// awaitPage notes that the first page is on its way.
func (m *member) awaitPage(k list.Kind) *late {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late[k] = &late{}
	return m.late[k]
}

// keepPage keeps the page that l stands for until it is asked for; nil means
// that there is none. It reports whether there is something to ask for: the
// list may have changed since.
func (m *member) keepPage(k list.Kind, l *late, page *jsonrpc.Message) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l == nil || m.late[k] != l {
		return false
	}
	if l.page = page; page == nil {
		m.late[k] = nil
	}
	return page != nil
}

// awaits reports whether l still stands for the page that is on its way.
func (m *member) awaits(k list.Kind, l *late) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return l != nil && m.late[k] == l
}

// outdate drops the pages that the notification makes wrong.
func (m *member) outdate(changed string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range list.Kinds {
		if k.Changed() == changed {
			m.late[k] = nil
			m.catalog.slow.forget(k)
		}
	}
}

// join makes one answer of the servers' pages, of which those of late are not
// there yet: what is known of them stands in their place.
func (g *merge) join(k list.Kind, from *cursor, pages []*jsonrpc.Message, known [][]byte, late map[*member]bool) (*jsonrpc.Message, error) {
	next := cursor{Kind: k, At: map[string]*list.Mark{}}
	out := []byte(`{"` + k.Member() + `":[`)
	empty := len(out)
	var meta []byte
	var no *jsonrpc.Message // the first refusal
	good := 0
	for _, m := range g.members {
		var page *jsonrpc.Message
		if !late[m] { // otherwise it may be written now
			page = pages[m.place]
		} else if from != nil {
			next.At[m.r.o.Name] = from.At[m.r.o.Name]
		}
		result := known[m.place]
		if page == nil && result == nil {
			continue
		}
		if page != nil && page.Error != nil {
			m.r.log.Debug("left out of a list", "method", k.Method(), "err", string(page.Error))
			if no == nil {
				no = page
			}
			continue
		}
		good++
		if page != nil {
			result = resultOf(page)
			page.Release()
			if from == nil {
				m.catalog.slow.keep(k, g.caller.Revision, result)
			}
		}
		at := &list.Mark{}
		if from != nil {
			at = from.At[m.r.o.Name]
		}
		more, ok := list.Next(result)
		if ok && !at.Follow(more) {
			m.r.log.Warn("list cut off: the server leads in circles, or has no end", "method", k.Method())
			ok = false
		}
		if ok {
			next.At[m.r.o.Name] = at
		}
		m.catalog.learn(k, result, m.expose(k), from == nil, !ok)
		k.Each(result, func(item []byte, key string) {
			if item = m.show(k, item, key); item == nil {
				return
			}
			if len(out) > empty {
				out = append(out, ',')
			}
			out = append(out, item...)
		})
		if own := gjson.GetBytes(result, "_meta"); own.IsObject() {
			if meta == nil {
				meta = []byte("{}")
			}
			own.ForEach(func(name, value gjson.Result) bool {
				if !gjson.GetBytes(meta, gjson.Escape(name.Str)).Exists() { // of two that say the same, the first counts
					meta = rawjson.SetFirst(meta, name.Str, []byte(value.Raw))
				}
				return true
			})
		}
	}
	if good == 0 && no != nil {
		return no, nil
	}
	out = append(out, ']')
	if len(next.At) > 0 {
		out = append(out, `,"nextCursor":`+rawjson.Quote(next.String())...)
	}
	if g.caller.Modern() {
		if meta == nil {
			meta = []byte("{}")
		}
		meta = rawjson.SetFirst(meta, era.KeyServerInfo, g.b.serverInfo())
		out = append(out, `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`...)
	}
	if meta != nil {
		out = append(append(out, `,"_meta":`...), meta...)
	}
	return jsonrpc.NewResult(nil, append(out, '}')), nil
}

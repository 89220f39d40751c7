package aggregate

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// cursor is the position at which the lists of several servers continue. It is opaque for clients.
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

// cursorOf reads a request's cursor; nil means the first page. cursorOf reports false for a cursor that the aggregate
// did not make for a list of kind k.
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

// listCall is one request for a list. Replies of servers may arrive after the request has ended.
type listCall struct {
	g       *session
	k       list.Kind
	from    *cursor // the position at which the list continues; nil for the first page
	members []*member
	parts   map[*member]*part // one for each member
	inner   bridge.Request    // the request without its message
	params  []byte            // without cursor
	lacking []missing         // servers that the list lacks
	began   time.Time
	opened  chan struct{} // receives an item when a connection is open
}

// part is one server's contribution to a list.
type part struct {
	page    *jsonrpc.Message // nil until the page arrives
	known   []byte           // the stored page of a slow server; nil if there is none that may be used
	late    *late            // the entry under which later requests await page
	earlier *late            // the entry of an earlier request that awaits the same page
	opened  atomic.Int64     // when the connection was open, in nanoseconds since listCall.began, plus 1; 0 until then
}

// took returns the time since the connection to a server was open; 0 if the connection is not open.
func (l *listCall) took(m *member) time.Duration {
	if opened := l.parts[m].opened.Load(); opened != 0 {
		return time.Since(l.began) - time.Duration(opened-1)
	}
	return 0
}

// list answers a request for a list with one page of each server.
func (s *session) list(ctx context.Context, k list.Kind, r *bridge.Request) (*jsonrpc.Message, error) {
	from, ok := cursorOf(k, r.Params)
	if !ok {
		return jsonrpc.InvalidParams("params.cursor is not a nextCursor of " + r.Method), nil
	}
	l := &listCall{
		g:       s,
		k:       k,
		from:    from,
		members: s.members(),
		parts:   map[*member]*part{},
		began:   time.Now(),
		opened:  make(chan struct{}, 1),
		params:  rawjson.Delete(bytes.Clone(r.Params), "cursor"),
		inner: bridge.Request{
			From:     r.From,
			Header:   r.Header.Clone(),
			Identity: r.Identity,
			Call:     r.Call,
		},
	} // r may not be used after this call
	asked, good := l.choose()
	late, err := s.gather(ctx, asked, l, good)
	if err != nil {
		return nil, err
	}
	for _, m := range asked {
		if !late[m] { // the fresh page replaces the stored page, even if the fresh page is an error
			l.parts[m].known = nil
		}
	}
	a := l.mergedOnce(late)
	if k == list.Tools && from == nil {
		s.lack(l.lacking)
	}
	return a, nil
}

// choose returns the servers to ask. good is the number of servers whose page is known already.
func (l *listCall) choose() (asked []*member, good int) {
	var absent []*member
	for _, m := range l.members {
		p := &part{}
		l.parts[m] = p
		if l.from != nil {
			if l.from.At[m.s.Name] != nil {
				asked = append(asked, m)
			}
			continue
		}
		p.known, p.earlier = m.takeLate(l.k)
		offers, out := m.offers(l.k), m.leftOut()
		switch {
		case p.known != nil:
			good++
			continue
		case !offers:
			continue
		case out == nil:
			if p.known = m.lastKnown(l.k); p.known != nil {
				good++
			}
		}
		switch {
		case p.earlier != nil && p.known != nil:
		case out != nil:
			absent = append(absent, m)
		default:
			asked = append(asked, m)
		}
	}
	if good+len(asked) == 0 { // an empty list would be wrong
		return absent, 0
	}
	for _, m := range absent {
		l.missing(m, m.leftOut())
	}
	return asked, good
}

// patience implements question. A server gets only slowPatience if its stored page may be used, or if it did not answer
// before. A server gets listPatience from the moment that its connection is open.
func (l *listCall) patience(m *member) time.Duration {
	p, start := l.parts[m], l.g.a.o.Start()
	switch opened := p.opened.Load(); {
	case l.from == nil && (p.known != nil || m.catalog.slow.mute(l.k)):
		return slowPatience
	case opened != 0:
		return min(start, time.Duration(opened-1)+listPatience)
	}
	return start
}

func (l *listCall) moved() <-chan struct{} { return l.opened }

func (l *listCall) needsOne() bool { return true }

// missing records for the client that a server is left out of the list, and logs why.
func (l *listCall) missing(m *member, why error) {
	l.logMissing(m, why)
	l.lacking = append(l.lacking, m.lacking(why))
}

// lacks reports whether missing was called for a server.
func (l *listCall) lacks(m *member) bool {
	return slices.ContainsFunc(l.lacking, func(one missing) bool { return one.Server == m.s.Name })
}

// logMissing logs why a server is left out of the list. The line is a warning if the last list of that kind had the
// server.
func (l *listCall) logMissing(m *member, why error) {
	level := slog.LevelDebug
	if m.catalog.slow.missing(l.k, true) {
		level = slog.LevelWarn
	}
	m.s.Log.Log(context.Background(), level, "left out of the list of all servers", "method", l.k.Method(), "err", why)
}

// These are the reasons to leave a working server out of a list.
var (
	errStarting = errors.New("it is still starting")
	errSlow     = errors.New("it has not answered in time")
)

// ask requests a server's page. If an earlier request still awaits that page, ask waits for the earlier request
// instead.
func (l *listCall) ask(ctx context.Context, m *member) error {
	p := l.parts[m]
	if p.earlier != nil {
		select {
		case <-p.earlier.done:
			return p.earlier.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	params := l.params
	if l.from != nil {
		params = rawjson.Set(params, "cursor", []byte(rawjson.Quote(l.from.At[m.s.Name].Cursor)))
	}
	r := l.inner
	r.Message = jsonrpc.NewRequest(l.k.Method(), params)
	r.Opened = func() {
		p.opened.Store(int64(time.Since(l.began)) + 1)
		select {
		case l.opened <- struct{}{}:
		default: // the wait reads the times of all servers
		}
	}
	var err error
	p.page, err = m.call(ctx, &r)
	if err == nil && l.from == nil {
		m.catalog.slow.took(l.k, l.took(m))
	}
	return err
}

// overdue records that a server's page is late, so that later requests can await the page.
func (l *listCall) overdue(m *member) {
	if p := l.parts[m]; l.from == nil && p.earlier == nil { // otherwise an earlier request awaits this page, or the client requests the page of its cursor again
		p.late = m.awaitPage(l.k)
		m.catalog.slow.overdue(l.k, l.took(m))
	}
}

// after stores a page that came too late, and announces a change to the client if the client's list differs.
func (l *listCall) after(m *member, err error) {
	p := l.parts[m]
	if p.earlier != nil {
		return // the earlier request takes the page
	}
	var result []byte
	if err == nil && p.page.Error == nil && l.from == nil {
		result = resultOf(p.page)
		if m.awaits(l.k, p.late) { // false if the list has changed meanwhile
			m.catalog.slow.keep(l.k, l.g.caller.Revision, result)
		}
	}
	p.page.Release()
	news := !bytes.Equal(result, p.known) // false if the client has this page already
	if m.keepPage(l.k, p.late, result, news, err) || err != nil && p.known != nil {
		l.g.to.Notify(jsonrpc.NewNotification(l.k.Changed(), nil))
	}
	if err != nil {
		m.leaveOut(err)
	}
}

// takeLate returns and removes the page that came too late for the last request. If that page is still awaited,
// takeLate returns its entry as coming, and the entry stays.
func (m *member) takeLate(k list.Kind) (page []byte, coming *late) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.late[k]
	if l == nil || l.page == nil {
		return nil, l
	}
	m.late[k] = nil
	return l.page, nil
}

// awaitPage returns a new entry, under which later requests await the first page.
func (m *member) awaitPage(k list.Kind) *late {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late[k] = &late{done: make(chan struct{})}
	return m.late[k]
}

// keepPage gives page, or the error why, to the callers that await l. If news is set, page stays for the next request.
// keepPage reports whether page stays.
func (m *member) keepPage(k list.Kind, l *late, page []byte, news bool, why error) bool {
	if l == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer close(l.done)
	l.err = why
	if m.late[k] != l {
		return false
	}
	if l.page = page; page == nil || !news {
		m.late[k] = nil
	}
	return m.late[k] != nil
}

// latePage returns the page of l and removes it. latePage returns nil if there is none.
func (m *member) latePage(k list.Kind, l *late) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.late[k] == l {
		m.late[k] = nil
	}
	return l.page
}

// awaits reports whether l is still the entry of the awaited page.
func (m *member) awaits(k list.Kind, l *late) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return l != nil && m.late[k] == l
}

// outdate drops the pages that the notification invalidates.
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

// merged is a list that is built from the lists of several servers.
type merged struct {
	items []byte // with a comma before each but the first
	meta  []byte // _meta of the result; nil without one
	next  cursor
}

// merge builds one answer from the pages. Servers in late have no page yet: merge uses their stored page, if there is
// one.
func (l *listCall) merge(late map[*member]bool) *jsonrpc.Message {
	all := &merged{next: cursor{Kind: l.k, At: map[string]*list.Mark{}}}
	var no *jsonrpc.Message // the first error of a server
	good := 0
	for _, m := range l.members {
		p := l.parts[m]
		result := p.known
		if late[m] { // its reply may arrive at any time, so p.page is not read
			switch {
			case l.from != nil:
				all.next.At[m.s.Name] = l.from.At[m.s.Name]
			case result != nil:
			case p.earlier == nil && p.opened.Load() == 0:
				l.missing(m, errStarting)
			default:
				l.missing(m, errSlow)
			}
		} else if p.earlier != nil && result == nil {
			result = m.latePage(l.k, p.earlier)
		} else if page := p.page; page != nil {
			if page.Error != nil {
				if gjson.GetBytes(page.Error, "code").Int() == jsonrpc.CodeMethodNotFound { // the server has no such list
					l.logMissing(m, errors.New(string(page.Error)))
					continue
				}
				l.missing(m, errors.New(string(page.Error)))
				if no == nil {
					no = page
				}
				continue
			}
			result = resultOf(page)
			page.Release()
			if l.from == nil {
				m.catalog.slow.keep(l.k, l.g.caller.Revision, result)
			}
		}
		if why := m.leftOut(); result == nil && why != nil && m.offers(l.k) && !l.lacks(m) { // it has just failed
			l.lacking = append(l.lacking, m.lacking(why))
		}
		if result == nil {
			continue
		}
		good++
		m.catalog.slow.missing(l.k, false)
		more, repeats := l.follow(m, result, all)
		if repeats {
			result = []byte("{}")
		}
		m.catalog.learn(l.k, result, m.external(l.k), l.from == nil, !more)
		all.add(m, l.k, result)
	}
	if good == 0 && no != nil {
		return no
	}
	return l.answer(all)
}

// follow records where a server's list continues. more reports whether the list continues, and repeats whether the
// page came before.
func (l *listCall) follow(m *member, page []byte, all *merged) (more, repeats bool) {
	at := &list.Mark{}
	if l.from != nil {
		at = l.from.At[m.s.Name]
	}
	more, cut := at.Follow(l.k, page)
	if more {
		all.next.At[m.s.Name] = at
	}
	m.s.cutOff(l.k, cut)
	return more, errors.Is(cut, list.ErrRepeats)
}

// cutOff logs that a list was cut off, unless why is nil. The first line for a list is a warning.
func (s *server) cutOff(k list.Kind, why error) {
	if why == nil {
		return
	}
	level := slog.LevelDebug
	if !s.cut[k].Swap(true) {
		level = slog.LevelWarn
	}
	s.Log.Log(context.Background(), level, "list cut off", "method", k.Method(), "err", why)
}

// add appends the items of one server's page that show does not drop, and merges the page's _meta.
func (m *merged) add(one *member, k list.Kind, page []byte) {
	k.Each(page, func(item []byte, key string) {
		if item = one.show(k, item, key); item == nil {
			return
		}
		if len(m.items) > 0 {
			m.items = append(m.items, ',')
		}
		m.items = append(m.items, item...)
	})
	own := gjson.GetBytes(page, "_meta")
	if !own.IsObject() {
		return
	}
	if m.meta == nil {
		m.meta = []byte("{}")
	}
	own.ForEach(func(name, value gjson.Result) bool {
		if !gjson.GetBytes(m.meta, gjson.Escape(name.Str)).Exists() { // the first server's value counts
			m.meta = rawjson.SetFirst(m.meta, name.Str, []byte(value.Raw))
		}
		return true
	})
}

// answer returns the merged list as the client gets it.
func (l *listCall) answer(all *merged) *jsonrpc.Message {
	out := append(append([]byte(`{"`+l.k.Member()+`":[`), all.items...), ']')
	if len(all.next.At) > 0 {
		out = append(out, `,"nextCursor":`+rawjson.Quote(all.next.String())...)
	}
	meta := all.meta
	if l.g.caller.Modern() {
		if meta == nil {
			meta = []byte("{}")
		}
		meta = rawjson.SetFirst(meta, era.KeyServerInfo, l.g.a.o.Info)
		out = append(out, `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`...)
	}
	if len(l.lacking) > 0 {
		if meta == nil {
			meta = []byte("{}")
		}
		text, _ := json.Marshal(l.lacking) // strings and times always have a JSON form
		meta = rawjson.SetFirst(meta, era.KeyMissing, text)
	}
	if meta != nil {
		out = append(append(out, `,"_meta":`...), meta...)
	}
	return jsonrpc.NewResult(nil, append(out, '}'))
}

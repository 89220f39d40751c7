package lower

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Translator lets stateless clients use one connection to a legacy server (protocol.md D1). It is the Client of
// the connection, and finds the call or subscription of each message. One lock guards everything in flight,
// because a question may belong to any of it.
type Translator struct {
	s       *Server
	of      Clients
	asks    bool // the server may ask the clients something
	slot    Slot
	line    Line
	about   atomic.Pointer[legacy]
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup  // of calls
	lost    context.Context // ends when the server is gone for good
	lose    context.CancelFunc
	watched subscribe.Watched[*subscribe.Listener]
	level   logLevel

	mu        sync.Mutex               // guards the rest, and the fields of other types that name it
	order     uint64                   // numbers sent and resumed calls
	asking    map[*parked]struct{}     // calls that can carry questions
	requests  map[*request]struct{}    // in flight
	held      []*heldQuestion          // questions that wait for a call
	urls      map[string]chan struct{} // by elicitationId; closed when the elicitation is complete
	closed    bool
	suspicion suspicion
}

var _ bridge.Client = (*Translator)(nil)

// Translator returns a Translator for these clients. open makes its connection, with the Translator as Client.
func (s *Server) Translator(of Clients, slot Slot, open func(bridge.Client) Line) *Translator {
	t := &Translator{
		s:        s,
		of:       of,
		slot:     slot,
		level:    logLevel{turn: make(chan struct{}, 1)},
		asking:   map[*parked]struct{}{},
		requests: map[*request]struct{}{},
	}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.lost, t.lose = context.WithCancel(context.Background())
	t.line = open(t)
	t.asks = Askable(era.LegacyCapabilities(t.line.Caller().Capabilities))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.translators[t] = struct{}{}
	return t
}

// request is a client's request in flight. If the call cannot be parked, the request is the call's Client.
type request struct {
	bridge.Nobody // the end of the connection is no event: the call itself fails
	r             *bridge.Request
	level         string       // the lowest level of log messages that the client requests; empty for none
	out           chan outcome // gets one outcome
	l             *Translator  // nil if the call can be parked
	rounds        int          // how often the client had to visit URLs for the request
}

var _ bridge.Client = (*request)(nil)

func newRequest(r *bridge.Request) *request {
	return &request{
		r:     r,
		level: era.LogLevel(r.Meta()),
		out:   make(chan outcome, 1),
	}
}

// Notify passes on a notification about the call.
func (r *request) Notify(m *jsonrpc.Message) {
	if r.l != nil && r.l.withholds(m) || !era.Wanted(m, r.level) {
		return
	}
	r.r.Back.Notify(m)
}

// Ask takes a question about a call that cannot carry questions.
func (r *request) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return r.l.askWithoutCall(m, reply)
}

// Call makes a stateless client's call to the legacy server of that greeting. held means that the answer is
// cached, so no connection is needed.
func (t *Translator) Call(ctx context.Context, r *bridge.Request, greeting *bridge.Greeting, held bool, again *Round) (*jsonrpc.Message, error) {
	l := t.legacy(greeting)
	switch {
	case r.Method == "server/discover":
		return jsonrpc.NewResult(nil, slices.Clone(l.discover)), nil
	case r.Method == era.Listen:
		return t.listen(ctx, r, l)
	case !l.carries(r):
		return jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "the server has no method "+r.Method, nil), nil
	}
	v := newRequest(r)
	rounds := 0
	if again != nil && again.ours != nil { // the request repeats one that needed visits to URLs
		if no := t.checkURLs(ctx, l, r, again); no != nil {
			return no, nil
		}
		rounds = again.ours.Round
	}
	if !held {
		if err := t.raiseLevel(ctx, v, l); err != nil && !cached[r.Method] { // the cache may answer nevertheless
			return nil, err
		}
	}
	inner := *r
	inner.Message, inner.Mirror = era.Lowered(r.Message, l.Revision), nil
	v.rounds = rounds
	if t.asks && era.MayAsk(r.Method) {
		return t.begin(ctx, v, &inner, l)
	}
	v.l, inner.Back = t, v
	t.mu.Lock()
	t.requests[v] = struct{}{}
	t.mu.Unlock()
	m, err := t.perform(ctx, &inner, l, nil)
	t.mu.Lock()
	delete(t.requests, v)
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return t.conclude(v, l, m)
}

// carries reports whether a request goes to the server. A request does if both eras have its method, or if both sides
// declare an extension, which may define the method. Announced capabilities do not matter: some servers do not
// announce their capabilities, and the others refuse the request.
func (l *legacy) carries(r *bridge.Request) bool {
	if era.InBoth(r.Method) {
		return true
	}
	if era.IsTask(r.Method) || era.IsRemoved(r.Method) {
		return false
	}
	for _, kind := range []string{"extensions", "experimental"} {
		theirs := gjson.GetBytes(l.Capabilities, kind)
		shared := false
		gjson.GetBytes(r.From.Capabilities, kind).ForEach(func(name, _ gjson.Result) bool {
			shared = name.Str != era.TasksExtension && theirs.Get(gjson.Escape(name.Str)).Exists()
			return !shared
		})
		if shared {
			return true
		}
	}
	return false
}

// conclude turns the server's answer into the client's answer.
func (t *Translator) conclude(r *request, l *legacy, a *jsonrpc.Message) (*jsonrpc.Message, error) {
	switch {
	case a.Error != nil:
		if m := t.urlsNeeded(r, l, a); m != nil {
			a.Release()
			return m, nil
		}
	case r.r.Method == list.Tools.Method():
		t.of.Tools.Look(r.r.Message, a)
	}
	return l.upgrade(r.r, a), nil
}

// levelPatience is how long a server gets to set a log level.
const levelPatience = 5 * time.Second

// raiseLevel makes the server send the log messages that a request demands. The server gets the most verbose level of
// all requests so far (protocol.md D1.7).
func (t *Translator) raiseLevel(ctx context.Context, r *request, l *legacy) error {
	if r.level == "" || !l.logging || t.level.covers(r.level) {
		return nil
	}
	select {
	case t.level.turn <- struct{}{}:
		defer func() { <-t.level.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if t.level.covers(r.level) {
		return nil
	}
	ask := jsonrpc.NewRequest("logging/setLevel", []byte(`{"level":`+rawjson.Quote(r.level)+`}`))
	short, stop := context.WithTimeout(ctx, levelPatience)
	defer stop()
	m, err := t.line.Call(short, &bridge.Request{Message: ask, From: t.line.Caller()})
	switch {
	case err == nil && m.Error == nil:
		m.Release()
	case err == nil || ctx.Err() == nil && short.Err() != nil: // a server that does not answer is used nevertheless
		t.s.o.Log.Debug("the server does not take a log level", "level", r.level)
		m.Release()
	default:
		return err
	}
	t.level.mu.Lock()
	defer t.level.mu.Unlock()
	t.level.level = r.level // also after a refusal, which would only repeat itself
	return nil
}

// logLevel is the log level of the server.
type logLevel struct {
	turn chan struct{} // a lock, held while a level is sent

	mu    sync.Mutex // guards level
	level string     // empty if none was set
}

// covers reports whether the server sends messages of that level.
func (l *logLevel) covers(level string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.level != "" && era.Severity(l.level) <= era.Severity(level)
}

// Notify takes a notification that belongs to no known call.
func (t *Translator) Notify(m *jsonrpc.Message) {
	switch m.Method {
	case "notifications/message":
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(t.requests) != 1 {
			return // it is unknown to which of several requests the message belongs (D8.12)
		}
		for r := range t.requests {
			r.Notify(m)
		}
	case "notifications/elicitation/complete":
		t.urlDone(gjson.GetBytes(m.Params, "elicitationId").Str)
	default:
		t.changed(m)
	}
}

// withholds reports whether a notification about a call is not for the client. 2026-07-28 has only progress and
// log messages there.
func (t *Translator) withholds(m *jsonrpc.Message) bool {
	switch m.Method {
	case "notifications/progress", "notifications/message":
		return false
	case "notifications/elicitation/complete":
		t.urlDone(gjson.GetBytes(m.Params, "elicitationId").Str)
	default:
		t.s.o.Log.Debug("notification dropped: the client's revision does not define it", "method", m.Method)
	}
	return true
}

// Gone gives the connection up: the server has ended for good, or was replaced. Further requests use a new
// connection.
func (t *Translator) Gone(error) {
	t.lose()
	t.slot.Gone()
}

// Close ends the connection and all calls. When ctx ends, Close stops waiting for the server.
func (t *Translator) Close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	held := t.releaseHeld()
	t.mu.Unlock()
	for _, h := range held {
		h.refuse()
	}
	t.cancel(bridge.ErrShutdown)
	_ = t.line.Close(ctx)
	t.wg.Wait()
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	delete(t.s.translators, t)
}

// Askable reports whether the capabilities allow any question of a legacy server.
func Askable(capabilities []byte) bool {
	return slices.ContainsFunc([]string{"roots", "sampling", "elicitation"}, func(need string) bool {
		return gjson.GetBytes(capabilities, need).Exists()
	})
}

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

// Translator lets clients without sessions use one connection to a legacy server
// (protocol.md D1). It is the Client of the connection: it finds the call, or
// the subscription, that something from the server belongs to. What is asked must
// be looked for in all that is under way, so all of that is under one lock.
type Translator struct {
	s       *Server
	of      Clients
	asks    bool // the server may ask them something
	slot    Slot
	line    Line
	about   atomic.Pointer[legacy]
	ctx     context.Context // ends with close
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup  // calls
	lost    context.Context // ends when the server is gone for good
	lose    context.CancelFunc
	watched subscribe.Watched[*subscribe.Listener]
	level   logLevel

	mu       sync.Mutex            // guards the rest, and what is said of the fields of others
	order    uint64                // numbers sent and resumed calls
	asking   map[*parked]struct{}  // calls about which its clients can be asked
	requests map[*request]struct{} // requests under way
	held     []*heldQuestion
	urls     map[string]chan struct{}
	closed   bool
	doubt    doubt
}

var _ bridge.Client = (*Translator)(nil)

// Translator returns what translates for such clients. open makes its connection,
// whose Client it is.
func (s *Server) Translator(of Clients, slot Slot, open func(bridge.Client) Line) *Translator {
	l := &Translator{
		s: s, of: of, slot: slot, level: logLevel{turn: make(chan struct{}, 1)},
		asking: map[*parked]struct{}{}, requests: map[*request]struct{}{},
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.lost, l.lose = context.WithCancel(context.Background())
	l.line = open(l)
	l.asks = Askable(era.LegacyCapabilities(l.line.Caller().Capabilities))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.translators[l] = struct{}{}
	return l
}

// request is one of a client that is under way, and the Client of its call
// unless that can be parked.
type request struct {
	bridge.Nobody // the end of the connection is of no interest: the call itself fails
	r             *bridge.Request
	level         string       // from which on the client wants log messages; empty means none
	out           chan outcome // takes one
	l             *Translator  // nil when the call can be parked
	rounds        int          // in which URLs had to be visited
}

var _ bridge.Client = (*request)(nil)

func newRequest(r *bridge.Request) *request {
	return &request{r: r, level: era.LogLevel(r.Meta()), out: make(chan outcome, 1)}
}

// Notify passes on what the server says about the call.
func (v *request) Notify(n *jsonrpc.Message) {
	if v.l != nil && v.l.keeps(n) || !era.Wanted(n, v.level) {
		return
	}
	v.r.Back.Notify(n)
}

// Ask takes what the server asks about a call that cannot carry a question.
func (v *request) Ask(q *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	return v.l.stray(q, reply)
}

// Call makes the call of a client without a session to the legacy server that
// has said so. held means that the answer is kept, so that no connection is needed.
func (l *Translator) Call(ctx context.Context, r *bridge.Request, said *bridge.Greeting, held bool, again *Round) (*jsonrpc.Message, error) {
	s := l.legacy(said)
	switch {
	case r.Method == "server/discover":
		return jsonrpc.NewResult(nil, slices.Clone(s.discover)), nil
	case r.Method == era.Listen:
		return l.listen(ctx, r, s)
	case !s.carries(r):
		return jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "the server has no method "+r.Method, nil), nil
	}
	v := newRequest(r)
	rounds := 0
	if again != nil && again.ours != nil { // the URLs that had to be visited first
		if no := l.visited(ctx, s, r, again); no != nil {
			return no, nil
		}
		rounds = again.ours.Round
	}
	if !held { // otherwise there may be no connection, and no need of one
		if err := l.verbose(ctx, v, s); err != nil && !cached[r.Method] { // it may be answered all the same
			return nil, err
		}
	}
	inner := *r
	inner.Message, inner.Mirror = era.Lowered(r.Message, s.Revision), nil
	v.rounds = rounds
	if l.asks && era.MayAsk(r.Method) {
		return l.begin(ctx, v, &inner, s)
	}
	v.l, inner.Back = l, v
	l.mu.Lock()
	l.requests[v] = struct{}{}
	l.mu.Unlock()
	a, err := l.perform(ctx, &inner, s, nil)
	l.mu.Lock()
	delete(l.requests, v)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return l.conclude(v, s, a)
}

// carries reports whether a request goes to the server: its method is one that
// both eras have, or may be one of an extension that both sides have declared.
// Whether the server has announced tools, prompts or resources is not asked: some
// have the methods and announce nothing, and the others refuse by themselves.
func (s *legacy) carries(r *bridge.Request) bool {
	if era.InBoth(r.Method) {
		return true
	}
	if era.IsTask(r.Method) {
		return false
	}
	for _, kind := range []string{"extensions", "experimental"} {
		theirs := gjson.GetBytes(s.Capabilities, kind)
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

// conclude makes the answer that a client gets of the one of the server's.
func (l *Translator) conclude(v *request, s *legacy, a *jsonrpc.Message) (*jsonrpc.Message, error) {
	switch {
	case a.Error != nil:
		if m := l.urlsNeeded(v, s, a); m != nil {
			a.Release()
			return m, nil
		}
	case v.r.Method == list.Tools.Method():
		l.of.Tools.Look(v.r.Message, a)
	}
	return s.upgrade(v.r, a), nil
}

// levelPatience is how long a server has to take a log level.
const levelPatience = 5 * time.Second

// verbose makes the server send the log messages that a request wants: those of
// the most verbose level that any has wanted (protocol.md D1.7).
func (l *Translator) verbose(ctx context.Context, v *request, s *legacy) error {
	if v.level == "" || !s.logging || l.level.tells(v.level) {
		return nil
	}
	select {
	case l.level.turn <- struct{}{}:
		defer func() { <-l.level.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if l.level.tells(v.level) {
		return nil
	}
	ask := jsonrpc.NewRequest("logging/setLevel", []byte(`{"level":`+rawjson.Quote(v.level)+`}`))
	short, stop := context.WithTimeout(ctx, levelPatience)
	defer stop()
	a, err := l.line.Call(short, &bridge.Request{Message: ask, From: l.line.Caller()})
	switch {
	case err == nil && a.Error == nil:
		a.Release()
	case err == nil || ctx.Err() == nil && short.Err() != nil: // one that does not answer this is used all the same
		l.s.o.Log.Debug("the server does not take a log level", "level", v.level)
		a.Release()
	default:
		return err
	}
	l.level.mu.Lock()
	defer l.level.mu.Unlock()
	l.level.told = v.level // of a server that refuses it too: it will not like it any better the next time
	return nil
}

// logLevel is from which level on the server says what it logs.
type logLevel struct {
	turn chan struct{} // held while the server is told

	mu   sync.Mutex // guards told
	told string     // empty when it was not
}

// tells reports whether the server says all that is of that level.
func (v *logLevel) tells(level string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.told != "" && era.Severity(v.told) <= era.Severity(level)
}

// Notify takes what the server says that does not belong to a call of which it
// is known.
func (l *Translator) Notify(n *jsonrpc.Message) {
	switch n.Method {
	case "notifications/message":
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.requests) != 1 {
			return // it cannot be told whose it is (D8.12)
		}
		for v := range l.requests {
			v.Notify(n)
		}
	case "notifications/elicitation/complete":
		l.urlDone(gjson.GetBytes(n.Params, "elicitationId").Str)
	default:
		l.changed(n)
	}
}

// keeps reports whether what a legacy server says about a call is not for the
// client: 2026-07-28 has progress and log messages there and nothing else.
func (l *Translator) keeps(n *jsonrpc.Message) bool {
	switch n.Method {
	case "notifications/progress", "notifications/message":
		return false
	case "notifications/elicitation/complete":
		l.urlDone(gjson.GetBytes(n.Params, "elicitationId").Str)
	default:
		l.s.o.Log.Debug("notification not passed on: the client's revision has none of it", "method", n.Method)
	}
	return true
}

// Gone says that the server has ended for good, or came back another: requests
// to come use a new connection.
func (l *Translator) Gone(error) {
	l.lose()
	l.slot.Gone()
}

// Close ends the connection and all calls. It does not wait for long once ctx has
// ended.
func (l *Translator) Close(ctx context.Context) {
	l.mu.Lock()
	l.closed = true
	held := l.releaseHeld()
	l.mu.Unlock()
	for _, h := range held {
		h.refuse()
	}
	l.cancel(bridge.ErrShutdown)
	_ = l.line.Close(ctx)
	l.wg.Wait()
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	delete(l.s.translators, l)
}

// Askable reports whether capabilities have anything that a legacy server can ask.
func Askable(capabilities []byte) bool {
	return slices.ContainsFunc([]string{"roots", "sampling", "elicitation"}, func(need string) bool {
		return gjson.GetBytes(capabilities, need).Exists()
	})
}

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
	"github.com/mcp-bridge/bridge/internal/list"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ackPatience is how long a slow acknowledgement is waited for, where several servers are offered as one.
const ackPatience = 10 * time.Second

// everything is the result of initialize of a server with all capabilities.
const everything = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},` +
	`"logging":{},"tasks":{"list":{}},"x-vendor.new":{"k":1}},"serverInfo":{"name":"fake","version":"1"},"instructions":"be kind"}`

// fake is a server in memory. Its wires do what a real one's do: one goroutine
// reads, in order.
type fake struct {
	result string                                     // of initialize; empty means everything
	times  conn.Timeouts                              // of calls
	before func(ctx context.Context, n int) error     // what happens in the nth opening before the handshake
	serve  func(f *fakeWire, m *jsonrpc.Message) bool // answers a message or reports false
	after  func(f *fakeWire)                          // what happens between handshake and the return of Open
	closes func(ctx context.Context, f *fakeWire)     // what Close waits for
	told   bool                                       // the wire may say which call a question is about

	mu    sync.Mutex // guards the rest
	wires []*fakeWire
	opens []time.Time
}

type fakeWire struct {
	*conn.Conn
	f      *fake
	n      int // from 1
	from   *bridge.Caller
	rest   bridge.Client
	server *bridge.Greeting
	queue  chan func()
	done   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup

	mu     sync.Mutex // guards the rest
	got    []string   // what the server received, one line each
	traces int        // of these came with headers about a trace
}

func (f *fake) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	f.mu.Lock()
	f.opens = append(f.opens, time.Now())
	n := len(f.opens)
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(ctx, n); err != nil {
			return nil, err
		}
	}
	w := &fakeWire{f: f, n: n, from: from, rest: rest, queue: make(chan func(), 1<<14), done: make(chan struct{})}
	w.Conn = conn.New("fake", w, rest, f.times)
	w.wg.Go(w.run)
	var err error
	if w.server, err = conn.Handshake(ctx, w.Conn, from, ""); err != nil {
		_ = w.Close(ctx)
		return nil, err
	}
	f.mu.Lock()
	f.wires = append(f.wires, w)
	f.mu.Unlock()
	if f.after != nil {
		f.after(w)
	}
	return w, nil
}

func (f *fakeWire) run() {
	for {
		select {
		case <-f.done:
			return
		case do := <-f.queue:
			do()
		}
	}
}

// Send implements Sender.
func (f *fakeWire) Send(_ context.Context, o conn.Outgoing) error {
	line, told := o.Line, o.Trace != bridge.Trace{}
	text := string(line.B)
	line.Free()
	f.queue <- func() {
		f.mu.Lock()
		if f.got = append(f.got, text); told {
			f.traces++
		}
		f.mu.Unlock()
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			panic(err) // the bridge sends messages only
		}
		switch {
		case f.f.serve != nil && f.f.serve(f, m):
		case m.Method == "initialize":
			f.answer(m, cmp.Or(f.f.result, everything))
		case m.IsRequest():
			f.answer(m, "{}")
		}
	}
	return nil
}

func (f *fakeWire) answer(m *jsonrpc.Message, result string) {
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

// say makes the server send a message.
func (f *fakeWire) say(text string) {
	f.queue <- func() {
		buf := jsonrpc.NewBuffer(len(text))
		buf.B = append(buf.B, text...)
		m, err := jsonrpc.Parse(buf.B)
		if err != nil {
			panic(err)
		}
		f.Deliver(m.Own(buf))
	}
}

// die ends the connection by itself.
func (f *fakeWire) die() {
	f.queue <- func() {
		err := &bridge.Error{Server: "fake", Kind: bridge.ErrLost, Public: "it died", Err: errors.New("secret reason")}
		if f.Fail(err) {
			f.rest.Gone(err)
		}
	}
}

func (f *fakeWire) Server() *bridge.Greeting { return f.server }

// Attributes implements Attributing.
func (f *fakeWire) Attributes() bool { return f.f.told }

func (f *fakeWire) Close(ctx context.Context) error {
	f.Fail(&bridge.Error{Server: "fake", Kind: bridge.ErrLost, Public: "its connection was closed"})
	if f.f.closes != nil {
		f.f.closes(ctx, f)
	}
	f.once.Do(func() { close(f.done) })
	f.wg.Wait()
	return nil
}

// log returns what the server got, when all is quiet.
func (f *fakeWire) log() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// received is log without the handshake.
func (f *fakeWire) received() []string {
	var all []string
	for _, line := range f.log() {
		if !strings.Contains(line, `"initialize"`) && !strings.Contains(line, `"notifications/initialized"`) {
			all = append(all, line)
		}
	}
	return all
}

// wire returns the nth connection that was opened, from 1.
func (f *fake) wire(n int) *fakeWire {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wires[n-1]
}

// all returns what the server got over all connections, when all is quiet.
func (f *fake) all() (lines []string) {
	f.mu.Lock()
	wires := slices.Clone(f.wires)
	f.mu.Unlock()
	for _, f := range wires {
		lines = append(lines, f.received()...)
	}
	return lines
}

// says makes a server that answers methods with those results.
func says(results map[string]string) func(*fakeWire, *jsonrpc.Message) bool {
	return func(f *fakeWire, m *jsonrpc.Message) bool {
		result, ok := results[m.Method]
		if ok {
			f.answer(m, result)
		}
		return ok
	}
}

// open returns how many connections there were.
func (f *fake) open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.wires)
}

// opened returns how many were begun to be opened.
func (f *fake) opened() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.opens)
}

// stream is a client's stream that keeps what it is sent.
type stream struct {
	mu     sync.Mutex // guards the rest
	lines  []string
	closed bool
	heard  func(line string) // called without the lock
}

func (s *stream) Send(e replay.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.lines = append(s.lines, string(e.Data))
	if s.heard != nil {
		go s.heard(string(e.Data))
	}
	return true
}

// take returns what has come since the last take, when all is quiet.
func (s *stream) take() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// run runs f in a bubble with a bridge to one server, and checks that nothing
// is left of it.
func run(t *testing.T, s ServerOptions, f func(t *testing.T, g *gateway)) {
	t.Helper()
	runLogged(t, slog.New(slog.DiscardHandler), s, f)
}

// runLogged is run with a log that is looked at.
func runLogged(t *testing.T, log *slog.Logger, s ServerOptions, f func(t *testing.T, g *gateway)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.Name = "fake"
		g := newGateway(Options{Servers: []ServerOptions{s}, Log: log})
		f(t, g)
		g.Close(context.Background())
		if n := g.lanes.Open(); n != 0 {
			t.Errorf("%d lanes are left", n)
		}
	})
}

var sessions atomic.Int64 // numbers the ids

func initialize(t testing.TB, g *gateway, principal, params string) (*sitting, string, error) {
	t.Helper()
	s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":`+params+`}`), SessionOptions{Server: "fake", ID: fmt.Sprint("id", sessions.Add(1)), Principal: principal})
	return s, bridgetest.Text(m), err
}

// join begins a session with these options. Its id is made up unless it has one.
func join(t testing.TB, g *gateway, o SessionOptions) (*sitting, string, error) {
	t.Helper()
	o.ID = cmp.Or(o.ID, fmt.Sprint("id", sessions.Add(1)))
	s, m, err := g.initialize(context.Background(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":`+bridgetest.InitializeParams+`}`), o)
	return s, bridgetest.Text(m), err
}

// begin starts a session that is ready, with a stream open.
func begin(t testing.TB, g *gateway, principal string) (*sitting, *stream) {
	t.Helper()
	s, a, err := initialize(t, g, principal, bridgetest.InitializeParams)
	if err != nil {
		t.Fatalf("Initialize = %s, %v", a, err)
	}
	st := &stream{}
	s.Attach(st)
	s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
	return s, st
}

// do makes a request and returns the answer as text.
func do(t testing.TB, s *sitting, id, method, params string) string {
	t.Helper()
	m, _ := s.Call(bridgetest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)), nil, nil)
	return bridgetest.Text(m)
}

// pendingCall is a call that another goroutine makes.
type pendingCall struct {
	done   chan struct{}
	answer string
	err    error
	back   stream
}

func start(t testing.TB, s *sitting, line string) *pendingCall {
	t.Helper()
	p := &pendingCall{done: make(chan struct{})}
	m := bridgetest.Parse(t, line)
	if !s.Go(func() {
		defer close(p.done)
		a, err := s.Call(m, nil, &p.back)
		p.answer, p.err = bridgetest.Text(a), err
	}) {
		t.Fatal("the session has ended")
	}
	return p
}

// over reports whether the call has ended, when all is quiet.
func (p *pendingCall) over() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// sayOn makes the server send a message on the stream of a call, as it can over
// Streamable HTTP.
func (f *fakeWire) sayOn(call int64, text string) {
	f.queue <- func() {
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			panic(err)
		}
		f.DeliverOn(call, m)
	}
}

// pings counts what a server got of them.
func pings(f *fakeWire) (n int) {
	for _, line := range f.log() {
		if strings.Contains(line, `"method":"ping"`) {
			n++
		}
	}
	return n
}

func number(id []byte) (n int64) {
	for _, c := range id {
		n = 10*n + int64(c-'0')
	}
	return n
}

// silent makes a server that never answers that method.
func silent(method string) func(*fakeWire, *jsonrpc.Message) bool {
	return func(_ *fakeWire, m *jsonrpc.Message) bool { return m.Method == method }
}

const statelessReserved = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + ableVisitor

// inquisitive is a server whose tool ask puts a question to the client, of the method
// that is its argument q, and answers when that has an answer; slow never
// answers.
func inquisitive() *fake {
	var mu sync.Mutex
	waiting := map[string]*jsonrpc.Message{} // calls, by the id of their question
	return &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case m.Name() == "ask":
			id := fmt.Sprintf(`"q%d"`, len(waiting))
			waiting[id] = m.Clone()
			params := map[bool]string{true: `{}`, false: `{"message":"?","requestedSchema":{"type":"object","properties":{}}}`}
			method := "elicitation/create"
			if strings.Contains(string(m.Params), "roots/list") {
				method = "roots/list"
			}
			f.say(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params[method == "roots/list"] + `}`)
		case m.IsResponse():
			if call := waiting[string(m.ID)]; call != nil { // otherwise the question was about none
				f.answer(call, `{"content":[]}`)
			}
		default:
			return m.Name() == "slow"
		}
		return true
	}}
}

// modernFake is a server in memory that speaks 2026-07-28 only. Its result is that of server/discover.
type modernFake struct{ *fake }

func (m *modernFake) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	f := &fakeWire{f: m.fake, from: from, rest: rest, queue: make(chan func(), 1<<10), done: make(chan struct{})}
	f.Conn = conn.New("fake", f, rest, m.times)
	f.wg.Go(f.run)
	var verdict conn.Verdict
	var err error
	if f.server, verdict, err = conn.Discover(ctx, f.Conn, from); err != nil || verdict != conn.SaysModern {
		_ = f.Close(ctx)
		return nil, &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it is of no known era", Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opens = append(m.opens, time.Now())
	m.wires = append(m.wires, f)
	f.n = len(m.wires)
	return f, nil
}

// modernShop is a server that lists what it is given, says what it was
// asked, and tells listeners what they want to hear when it is told to.
func modernShop(name string, lists map[string]string) *modernFake {
	s := &modernFake{&fake{result: `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},` +
		`"prompts":{},"extensions":{"` + era.TasksExtension + `":{}}},"instructions":"ask ` + name + `","ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"` + name + `","version":"1"}}}`}}
	s.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if list, ok := lists[m.Method]; ok {
			f.answer(m, list)
			return true
		}
		switch m.Method {
		case "server/discover":
			f.answer(m, s.result)
		case era.Listen:
			want := gjson.GetBytes(m.Params, "notifications").Raw
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}}`, m.ID, want))
		case "tools/call":
			if strings.HasSuffix(m.Name(), "slow") {
				f.answer(m, `{"resultType":"task","taskId":"t1","status":"working"}`)
				return true
			}
			f.answer(m, fmt.Sprintf(`{"resultType":"complete","by":%q,"tool":%q,"meta":%s}`, name, m.Name(), m.Meta()))
		case "tasks/get":
			f.answer(m, fmt.Sprintf(`{"resultType":"complete","taskId":%s,"by":%q}`, gjson.GetBytes(m.Params, "taskId").Raw, name))
		case "resources/read":
			f.answer(m, fmt.Sprintf(`{"resultType":"complete","by":%q,"contents":[],"ttlMs":0,"cacheScope":"private"}`, name))
		default:
			return false
		}
		return true
	}
	return s
}

const statelessMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"` + era.TasksExtension + `":{}}},"progressToken":"p"}`

// shop is a fake server that lists what it is given and says what it was asked.
func shop(name string, lists map[string]string) *fake {
	f := &fake{result: `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{},"x-` + name + `":{}},` +
		`"serverInfo":{"name":"` + name + `","version":"1"},"instructions":"ask ` + name + `"}`}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if list, ok := lists[m.Method]; ok {
			f.answer(m, list)
			return true
		}
		switch m.Method {
		case "tools/call", "prompts/get", "resources/read", "completion/complete":
			if m.Method == "resources/read" && lists["unreadable"] != "" {
				f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no such thing"}}`, m.ID))
				return true
			}
			f.answer(m, fmt.Sprintf(`{"by":%q,"params":%s}`, name, m.Append(nil, nil, nil)[len(`{"jsonrpc":"2.0","method":"","params":`)+len(m.Method):len(m.Append(nil, nil, nil))-1]))
			return true
		}
		return false
	}
	return f
}

// toolList is a result of tools/list with tools of these names.
func toolList(names ...string) string {
	var all []string
	for _, n := range names {
		all = append(all, fmt.Sprintf(`{"description":"d","name":%q,"inputSchema":{"type":"object","x":1e400}}`, n))
	}
	return `{"tools":[` + strings.Join(all, ",") + `]}`
}

// stock is a server of a test, with its options.
type stock struct {
	name   string
	prefix string
	f      bridge.Adapter
	o      ServerOptions
}

// all runs f in a bubble with a bridge to several servers.
func all(t *testing.T, servers []stock, f func(t *testing.T, g *gateway)) {
	t.Helper()
	allLogged(t, slog.DiscardHandler, servers, f)
}

// allLogged is all, with a log.
func allLogged(t *testing.T, log slog.Handler, servers []stock, f func(t *testing.T, g *gateway)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var o Options
		for _, s := range servers {
			s.o.Name, s.o.Prefix, s.o.Adapter = s.name, s.prefix, s.f
			o.Servers = append(o.Servers, s.o)
		}
		o.Log, o.Version = slog.New(log), "9"
		g := newGateway(o)
		f(t, g)
		g.Close(context.Background())
		if n := g.lanes.Open(); n != 0 {
			t.Errorf("%d lanes are left", n)
		}
	})
}

// enter starts a session with all servers as one.
func enter(t *testing.T, g *gateway) (*sitting, *stream) {
	t.Helper()
	s, m, err := join(t, g, SessionOptions{})
	if err != nil {
		t.Fatalf("Initialize: %s, %v", m, err)
	}
	st := &stream{}
	s.Attach(st)
	s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
	return s, st
}

// names returns the names or URIs of what a list answer has.
func names(t *testing.T, answer string) []string {
	t.Helper()
	var out []string
	for k := range list.Kinds {
		gjson.Get(answer, "result."+k.Member()).ForEach(func(_, v gjson.Result) bool {
			out = append(out, v.Get(k.Key()).String())
			return true
		})
	}
	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// visitor is a client without a session.
type visitor struct {
	server    string // empty means the only one
	principal string
	caps      string
	meta      string // further members of _meta, each with a comma before it
	mode      ToolsMode
}

const ableVisitor = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`

// visiting is one request of such a client.
type visiting struct {
	stream
	cancel context.CancelCauseFunc
	done   chan struct{}
	answer string
	err    error
}

// ask makes a request in a goroutine. params are without braces.
func (v visitor) ask(t testing.TB, g *gateway, id, method, params string) *visiting {
	t.Helper()
	if params != "" {
		params += ","
	}
	if v.caps == "" {
		v.caps = ableVisitor
	}
	m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":{`+params+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+v.caps+v.meta+`}}}`)
	one := &visiting{done: make(chan struct{})}
	var ctx context.Context
	ctx, one.cancel = context.WithCancelCause(context.Background())
	s, no := NewStateless(v.server, v.principal, m)
	if no != nil {
		one.answer = bridgetest.Text(no)
		close(one.done)
		return one
	}
	s.Back, s.Tools = &one.stream, v.mode
	go func() {
		defer close(one.done)
		defer one.cancel(nil)
		a, err := g.Call(ctx, m, *s)
		one.answer, one.err = bridgetest.Text(a), err
		one.close() // nothing may come behind the answer
	}()
	return one
}

// over reports whether the request has its answer, when all is quiet.
func (v *visiting) over() bool {
	synctest.Wait()
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}

// call makes a request and waits for its answer.
func (v visitor) call(t testing.TB, g *gateway, method, params string) string {
	t.Helper()
	visiting := v.ask(t, g, "1", method, params)
	<-visiting.done
	return visiting.answer
}

var statePattern = regexp.MustCompile(`"requestState":"([^"]*)"`)

// stateOf returns the requestState in an answer.
func stateOf(t testing.TB, answer string) string {
	t.Helper()
	found := statePattern.FindStringSubmatch(answer)
	if found == nil {
		t.Fatalf("no requestState in %s", answer)
	}
	return found[1]
}

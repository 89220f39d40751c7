package wiretest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Discovered is Modern's result for server/discover.
const Discovered = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}`

// Modern is an MCP server of the stateless era in memory, without a wire. Its
// tools are the tools of Server that need no answer of the client (echo, steps,
// log, wait, late, large), and
//
//	fail  answers with the error arguments
//	linger reports progress, and waits then
//	flood reports progress arguments.n times with a message of arguments.bytes
//	lost, unavailable, timeout, overloaded  give no answer, for that reason
//
// The last four apply to any request while Faulty names one of them. A
// subscription is acknowledged as requested, and lasts until its client
// leaves.
type Modern struct {
	mu        sync.Mutex // guards the rest
	faulty    string
	delay     time.Duration // before a faulty request fails
	got       []string      // methods, and names of tools
	cancelled []string      // cancelled requests, with the reasons
	waiting   []chan string
	listens   map[*bridge.Request]struct{}
}

var (
	_ bridge.Adapter  = (*Modern)(nil)
	_ bridge.Upstream = (*Modern)(nil)
)

// Open implements bridge.Adapter.
func (m *Modern) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	return m, nil
}

// Server implements bridge.Upstream.
func (m *Modern) Server() *bridge.Greeting {
	return &bridge.Greeting{
		Revision:     era.LatestModern,
		Capabilities: []byte(gjson.Get(Discovered, "capabilities").Raw),
		Result:       []byte(Discovered),
	}
}

// Attributes implements bridge.Attributing. It returns true because each call has its own stream.
func (m *Modern) Attributes() bool { return true }

// Notify implements bridge.Upstream.
func (m *Modern) Notify(context.Context, *bridge.Request) error { return nil }

// Close implements bridge.Upstream.
func (m *Modern) Close(context.Context) error { return nil }

// Call implements bridge.Upstream.
func (m *Modern) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	what := r.Method
	if r.Method == "tools/call" {
		what += " " + r.Name()
	}
	m.mu.Lock()
	m.got = append(m.got, what)
	fault, delay := m.faulty, m.delay
	m.mu.Unlock()
	if fault != "" {
		select {
		case <-time.After(delay):
			return nil, faults[fault]
		case <-ctx.Done():
			return nil, m.takenBack(ctx, what)
		}
	}
	switch r.Method {
	case "server/discover":
		return answered(Discovered), nil
	case "tools/list":
		return answered(`{"resultType":"complete","tools":[{"name":"echo","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}`), nil
	case "tools/call":
		return m.tool(ctx, r, what)
	case "subscriptions/listen":
		return m.listen(ctx, r)
	}
	return jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "no such method", nil), nil
}

var faults = map[string]error{
	"lost": &bridge.Error{
		Server: "fake",
		Kind:   bridge.ErrLost,
		Public: "it died",
	},
	"unavailable": &bridge.Error{
		Server: "fake",
		Kind:   bridge.ErrUnavailable,
		Public: "it cannot start",
	},
	"timeout": &bridge.Error{
		Server: "fake",
		Kind:   bridge.ErrTimeout,
		Public: "it said nothing",
	},
	"overloaded": bridge.ErrOverloaded,
	"limited": &bridge.Error{
		Server: "fake",
		Kind:   bridge.ErrLimited,
		Public: "too often",
		After:  1500 * time.Millisecond,
	},
	"open": &bridge.Error{
		Server: "fake",
		Kind:   bridge.ErrOpen,
		Public: "circuit breaker open",
		After:  10 * time.Second,
	},
	"busy": &bridge.Error{
		Server: "fake",
		Kind:   bridge.ErrUnavailable,
		Public: "it limits its clients",
		After:  90 * time.Second,
	},
}

func (m *Modern) tool(ctx context.Context, r *bridge.Request, what string) (*jsonrpc.Message, error) {
	args := gjson.GetBytes(r.Params, "arguments")
	complete := func(members string) (*jsonrpc.Message, error) {
		return answered(`{"resultType":"complete",` + members + `}`), nil
	}
	switch name := r.Name(); name {
	case "echo":
		return complete(`"content":[],"structuredContent":` + cmp.Or(args.Raw, "null"))
	case "steps", "flood":
		text := strings.Repeat("x", int(args.Get("bytes").Int()))
		for i := range args.Get("n").Int() {
			report(r, i+1, text)
		}
		return complete(`"content":[]`)
	case "log":
		r.Back.Notify(said(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hello"}}`))
		return complete(`"content":[]`)
	case "wait", "linger":
		if name == "linger" {
			report(r, 1, "")
		}
		answer := make(chan string, 1)
		m.mu.Lock()
		m.waiting = append(m.waiting, answer)
		m.mu.Unlock()
		select {
		case result := <-answer:
			return answered(result), nil
		case <-ctx.Done():
			return nil, m.takenBack(ctx, what)
		}
	case "late":
		after, err := time.ParseDuration(args.Get("after").Str)
		if err != nil {
			panic(err)
		}
		select {
		case <-time.After(after):
			return complete(`"content":[],"late":true`)
		case <-ctx.Done():
			return nil, m.takenBack(ctx, what)
		}
	case "large":
		return complete(`"content":[],"large":"` + strings.Repeat("x", int(args.Get("n").Int())) + `"`)
	case "fail":
		return said(`{"jsonrpc":"2.0","id":1,"error":` + args.Raw + `}`), nil
	default:
		if err := faults[name]; err != nil {
			return nil, err
		}
	}
	return jsonrpc.NewError(nil, jsonrpc.CodeInvalidParams, "no such tool", nil), nil
}

func (m *Modern) listen(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	filter := gjson.GetBytes(r.Params, "notifications")
	if !filter.IsObject() {
		return jsonrpc.NewError(nil, jsonrpc.CodeInvalidParams, "params.notifications is missing", nil), nil
	}
	m.mu.Lock()
	if m.listens == nil {
		m.listens = map[*bridge.Request]struct{}{}
	}
	// The lock is held, so that a subscription gets every Say after its acknowledgement.
	r.Back.Notify(said(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":` + filter.Raw + `}}`))
	m.listens[r] = struct{}{}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	delete(m.listens, r)
	m.mu.Unlock()
	return nil, m.takenBack(ctx, r.Method)
}

func (m *Modern) takenBack(ctx context.Context, what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancelled = append(m.cancelled, what+": "+context.Cause(ctx).Error())
	return context.Cause(ctx)
}

func said(line string) *jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(line))
	if err != nil {
		panic(err)
	}
	return m
}

// report sends progress to a caller that requests it.
func report(r *bridge.Request, n int64, text string) {
	if r.Token() != nil {
		r.Back.Notify(said(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":%q}}`, r.Token(), n, text)))
	}
}

func answered(result string) *jsonrpc.Message {
	return said(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`)
}

// Say sends a notification to all subscriptions.
func (m *Modern) Say(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r := range m.listens {
		r.Back.Notify(said(line))
	}
}

// Answer answers the oldest call of the tool wait. It reports whether there is such a call.
func (m *Modern) Answer(result string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 {
		return false
	}
	m.waiting[0] <- result
	m.waiting = slices.Delete(m.waiting, 0, 1)
	return true
}

// Faulty makes all later requests fail with a named fault, after a delay. An empty name restores normal answers.
func (m *Modern) Faulty(fault string, after time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faulty, m.delay = fault, after
}

// Got returns the methods and the names of tools since the last Got.
func (m *Modern) Got() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.got
	m.got = nil
	return got
}

// Cancelled returns the requests that were cancelled since the last Cancelled, with the reasons.
func (m *Modern) Cancelled() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.cancelled
	m.cancelled = nil
	return all
}

func (m *Modern) Listens() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.listens)
}

// Both is a server that uses each client's own era.
type Both struct {
	Legacy *Server
	Modern *Modern
}

var _ bridge.Adapter = Both{}

// Open implements bridge.Adapter.
func (b Both) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	if from.Modern() {
		return b.Modern.Open(ctx, from, rest)
	}
	return b.Legacy.Open(ctx, from, rest)
}

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// announced is what a modern server with all capabilities says of itself.
const announced = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},` +
	`"resources":{"subscribe":true,"listChanged":true},"prompts":{},"logging":{},"completions":{},"extensions":{"com.example/x":{},"io.modelcontextprotocol/tasks":{}}},` +
	`"instructions":"be kind","ttlMs":60000,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"stateless","version":"2"}}}`

// silentServer announces nothing that needs a subscription.
const silentServer = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{},"resources":{}},` +
	`"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"silent","version":"2"}}}`

// What lifts promise of time and of sizes.
const (
	shrinkAfter  = 5 * time.Second  // one resource less is asked for after so long
	ackWithin    = 10 * time.Second // for so long an acknowledgement is waited for
	maxRefusals  = 3                // of a server that may not know subscriptions at all
	maxTalk      = time.Hour        // for so long a call may go on with questions
	longestState = 256 << 10        // of a requestState, in bytes
)

// statelessFake is a modern server in memory.
type statelessFake struct {
	line     bool   // its wire has no streams for calls, as that of stdio
	discover string // empty means announced
	mirrors  bool
	serve    func(s *statelessWire, m *jsonrpc.Message) bool // answers a message or reports false

	mu    sync.Mutex // guards wires
	wires []*statelessWire
}

type statelessWire struct {
	*conn.Conn
	f      *statelessFake
	rest   bridge.Client
	server *bridge.Greeting
	queue  chan func()
	done   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup

	mu  sync.Mutex // guards got
	got []string   // what the server received, one line each
}

func (s *statelessFake) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	w := &statelessWire{f: s, rest: rest, queue: make(chan func(), 1<<12), done: make(chan struct{})}
	w.Conn = conn.New("fake", w, rest, conn.Timeouts{})
	w.wg.Go(func() {
		for {
			select {
			case <-w.done:
				return
			case do := <-w.queue:
				do()
			}
		}
	})
	greeting, v, err := conn.Discover(ctx, w.Conn, from)
	if err != nil || v != conn.SaysModern {
		_ = w.Close(ctx)
		return nil, errors.Join(err, fmt.Errorf("verdict %d", v))
	}
	greeting.Mirrors = s.mirrors
	w.server = greeting
	s.mu.Lock()
	s.wires = append(s.wires, w)
	s.mu.Unlock()
	return w, nil
}

// Send implements Sender.
func (s *statelessWire) Send(_ context.Context, o conn.Outgoing) error {
	text := string(o.Line.B)
	o.Line.Free()
	s.queue <- func() {
		s.mu.Lock()
		s.got = append(s.got, text)
		s.mu.Unlock()
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			panic(err) // the bridge sends messages only
		}
		switch {
		case m.Method == "server/discover":
			s.reply(m, cmp.Or(s.f.discover, announced))
		case s.f.serve != nil:
			s.f.serve(s, m)
		}
	}
	return nil
}

// reply answers a request with a result.
func (s *statelessWire) reply(m *jsonrpc.Message, result string) {
	if !m.IsRequest() {
		return
	}
	s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

// say makes the server send a message.
func (s *statelessWire) say(text string) {
	s.queue <- func() {
		buf := jsonrpc.NewBuffer(len(text))
		buf.B = append(buf.B, text...)
		m, err := jsonrpc.Parse(buf.B)
		if err != nil {
			panic(err)
		}
		s.Deliver(m.Own(buf))
	}
}

// acknowledge begins the subscription that m asks for, less some resources.
func (s *statelessWire) acknowledge(m *jsonrpc.Message, less ...string) {
	params := string(rawjson.Delete(m.Params, "_meta"))
	for _, uri := range less {
		params = strings.NewReplacer(","+rawjson.Quote(uri), "", rawjson.Quote(uri)+",", "", rawjson.Quote(uri), "").Replace(params)
	}
	s.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID) + `},` + params[1:] + `}`)
}

func (s *statelessWire) Server() *bridge.Greeting { return s.server }

// Attributes implements Attributing.
func (s *statelessWire) Attributes() bool { return !s.f.line }

func (s *statelessWire) Close(context.Context) error {
	s.Fail(&bridge.Error{Server: "fake", Kind: bridge.ErrLost, Public: "its connection was closed"})
	s.once.Do(func() { close(s.done) })
	s.wg.Wait()
	return nil
}

// wire returns the nth connection that was opened, from 1, when all is quiet.
func (s *statelessFake) wire(n int) *statelessWire {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wires[n-1]
}

// received returns what the server got of that method, when all is quiet.
func (s *statelessWire) received(method string) []*jsonrpc.Message {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*jsonrpc.Message
	for _, line := range s.got {
		if m, err := jsonrpc.Parse([]byte(line)); err == nil && m.Method == method {
			all = append(all, m)
		}
	}
	return all
}

// take returns what has come since the last take, when all is quiet.
func (s *statelessWire) take() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := slices.Clone(s.got)
	s.got = nil
	return got
}

// able is what a client says in initialize that can do everything.
func able(revision string) string {
	return `{"protocolVersion":"` + revision + `","capabilities":{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"sampling":{}},"clientInfo":{"name":"c","version":"1"}}`
}

// beginAs starts a session that is ready, with a stream open.
func beginAs(t testing.TB, g *gateway, params string) (*sitting, *stream, string) {
	t.Helper()
	s, a, err := initialize(t, g, "", params)
	if err != nil {
		t.Fatalf("Initialize = %s, %v", a, err)
	}
	st := &stream{}
	s.Attach(st)
	s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`), nil)
	synctest.Wait()
	return s, st, a
}

package gateway

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A trace of a client's.
const (
	clientTrace  = "0af7651916cd43dd8448eb211c80319c"
	clientSpan   = "b7ad6b7169203331"
	clientParent = "00-" + clientTrace + "-" + clientSpan + "-01"
)

// recorded is the spans of a bridge.
type recorded struct{ *tracetest.SpanRecorder }

// traced runs f in a bubble with a bridge to servers of these names that takes
// part in tracing.
func traced(t *testing.T, f func(t *testing.T, g *gateway, spans recorded), servers ...ServerOptions) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		spans := recorded{tracetest.NewSpanRecorder()}
		g := newGateway(Options{Servers: servers, Log: slog.New(slog.DiscardHandler), Traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
		f(t, g, spans)
		g.Close(context.Background())
	})
}

// named returns the ended spans of that name, when all is quiet.
func (r recorded) named(name string) (all []sdktrace.ReadOnlySpan) {
	synctest.Wait()
	for _, s := range r.Ended() {
		if s.Name() == name {
			all = append(all, s)
		}
	}
	return all
}

// pair returns the spans of the one call of that name: at the door, and to the
// server.
func (r recorded) pair(t *testing.T, name string) (door, call sdktrace.ReadOnlySpan) {
	t.Helper()
	for _, s := range r.named(name) {
		switch s.SpanKind() {
		case trace.SpanKindServer:
			door = s
		case trace.SpanKindClient:
			call = s
		}
	}
	if door == nil || call == nil {
		t.Fatalf("there are no two spans %q among %d", name, len(r.Ended()))
	}
	if call.Parent().SpanID() != door.SpanContext().SpanID() || call.SpanContext().TraceID() != door.SpanContext().TraceID() {
		t.Errorf("the call's parent is %v, not the door %v", call.Parent(), door.SpanContext())
	}
	return door, call
}

func attr(s sdktrace.ReadOnlySpan, key string) string {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// last returns the last request of that method among lines that a server got.
func last(lines []string, method string) string {
	for _, line := range slices.Backward(lines) {
		if strings.Contains(line, `"method":"`+method+`"`) {
			return line
		}
	}
	return ""
}

// A client's trace goes on to a server of either era, by way of the bridge's own spans, from both kinds of clients. So do
// questions about its call, and each try of a request that is sent once more. A call that is refused at the door, and one
// that is taken back, have their spans too.
func TestTrace(t *testing.T) {
	times := 0
	old, modern := inquisitive(), modernShop("modern", nil)
	serve := old.serve
	old.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Name() == "lost" {
			if times++; times == 1 {
				return f.Abort(number(m.ID), &bridge.Error{Server: "fake", Kind: bridge.ErrUnsent, Public: "it has forgotten the session"})
			}
		}
		return serve(f, m)
	}
	traced(t, func(t *testing.T, g *gateway, spans recorded) {
		for _, server := range []string{"fake", "modern"} {
			s := sessionAt(t, g, server, "", "")
			carry := `"_meta":{"traceparent":"` + clientParent + `"}`
			ask := map[bool]func() string{
				true: func() string { return do(t, s, "1", "tools/call", `{"name":"x",`+carry+`}`) },
				false: func() string {
					return visitor{server: server, meta: `,"traceparent":"` + clientParent + `"`}.call(t, g, "tools/call", `"name":"x"`)
				},
			}
			for session, call := range ask {
				spans.Reset()
				bridgetest.Contains(t, call(), `"result"`)
				door, upstream := spans.pair(t, "tools/call x")
				lines := old.all()
				if server == "modern" {
					lines = modern.all()
				}
				if is := upstream.SpanContext(); door.Parent().SpanID().String() != clientSpan || !strings.Contains(strings.Join(lines, "\n"), clientTrace+"-"+is.SpanID().String()+"-01") {
					t.Errorf("%s, session %t: the parent is %v; the server got %q", server, session, door.Parent(), lines)
				}
			}
		}
		s := sessionAt(t, g, "fake", "", "")
		call := start(t, s, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask","arguments":{}}}`)
		asked := last(call.back.take(), "elicitation/create")
		if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":`+gjson.Get(asked, "id").Raw+`,"result":{}}`)); err != nil {
			t.Fatal(err, asked)
		}
		<-call.done
		door, _ := spans.pair(t, "tools/call ask")
		q := spans.named("elicitation/create")
		if len(q) != 1 || q[0].Parent().SpanID() != door.SpanContext().SpanID() || !strings.Contains(asked, q[0].SpanContext().SpanID().String()) {
			t.Fatalf("spans of questions: %v", q)
		}
		for _, key := range []string{"mcp.session.id", "mcp.protocol.version", "network.transport"} {
			if got := attr(q[0], key); got == "" || got != attr(door, key) {
				t.Errorf("%s of the question is %q, and of the call %q", key, got, attr(door, key))
			}
		}
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"lost"}`), `"result"`)
		if all := spans.named("tools/call lost"); len(all) != 3 || attr(all[0], "error.type") != "unavailable" || all[1].Status().Code != codes.Unset {
			t.Errorf("%d spans: %v", len(all), all)
		}
		slow := start(t, s, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow"}}`)
		synctest.Wait()
		s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`), nil)
		<-slow.done
		if door, _ := spans.pair(t, "tools/call slow"); attr(door, "error.type") != "cancelled" {
			t.Errorf("a call that is taken back has %v", door.Attributes())
		}
		s.End(bridge.ErrEnded)
		do(t, s, "1", "tools/call", `{"name":"late"}`)
		if late := spans.named("tools/call late"); len(late) != 1 || late[0].Status().Code != codes.Error {
			t.Errorf("a call that is refused has %v", late)
		}
	}, ServerOptions{Name: "fake", Adapter: old}, ServerOptions{Name: "modern", Adapter: modern})
}

// What several servers are asked for one call is a part of that call. What is fetched for all who ask is in nobody's trace;
// whoever asked sees in their own where it came from.
func TestTraceLists(t *testing.T) {
	list := says(map[string]string{"tools/list": toolList("a")})
	one, two, kept := &fake{serve: list}, &fake{serve: list}, &fake{serve: list}
	off := cache.Options{Off: true}
	traced(t, func(t *testing.T, g *gateway, spans recorded) {
		bridgetest.Contains(t, visitor{meta: `,"traceparent":"` + clientParent + `"`}.call(t, g, "tools/list", ""), "one_a", "two_a")
		parents, asked := map[trace.SpanID]bool{}, 0
		for _, s := range spans.named("tools/list") {
			if parents[s.Parent().SpanID()] = true; s.SpanKind() == trace.SpanKindClient {
				asked++
			}
		}
		if asked != 2 || len(parents) != 2 {
			t.Errorf("asked %d servers for %d requests", asked, len(parents)-1)
		}
		s := sessionAt(t, g, "kept", "", "")
		for _, want := range []string{"fetched for all who ask", "from the cache"} {
			spans.Reset()
			do(t, s, "1", "tools/list", `{"_meta":{"traceparent":"`+clientParent+`"}}`)
			if all := spans.named("tools/list"); len(all) != 1 || len(all[0].Events()) != 1 || all[0].Events()[0].Name != want {
				t.Errorf("spans, not with %s: %v", want, all)
			}
		}
		bridgetest.Lacks(t, last(kept.wire(kept.open()).log(), "tools/list"), "traceparent")
	}, ServerOptions{Name: "one", Adapter: one, ServerSettings: ServerSettings{Prefix: "one_", Cache: off}}, ServerOptions{Name: "two", Adapter: two, ServerSettings: ServerSettings{Prefix: "two_", Cache: off}},
		ServerOptions{Name: "kept", Adapter: kept})
}

// onStart is called when a span begins.
type onStart struct {
	*tracetest.SpanRecorder
	f func()
}

func (o onStart) OnStart(context.Context, sdktrace.ReadWriteSpan) { o.f() }

// A handshake is made again and again, and carries no trace. What is known of a client is complete before others find its
// session: whoever ends it meanwhile reads that for the log.
func TestTraceHandshake(t *testing.T) {
	var g *gateway
	seen := 0
	spans := recorded{tracetest.NewSpanRecorder()}
	begun := onStart{spans.SpanRecorder, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for s := range g.sessions {
			seen++
			bridgetest.Lacks(t, string(s.caller.Params), clientTrace)
		}
	}}
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		g = newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}, Log: slog.New(slog.DiscardHandler), Traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(begun))})
		defer g.Close(context.Background())
		if _, a, err := initialize(t, g, "", strings.Replace(bridgetest.InitializeParams, `{`, `{"_meta":{"k":1,"traceparent":"`+clientParent+`"},`, 1)); err != nil || seen == 0 {
			t.Fatalf("%s, %v; sessions seen: %d", a, err, seen)
		}
		bridgetest.Contains(t, f.wire(1).log()[0], `{"_meta":{"k":1},"protocolVersion"`)
		began, opened := spans.named("initialize"), spans.named("connect fake")
		if len(began) != 1 || len(opened) != 1 || began[0].Parent().SpanID().String() != clientSpan || opened[0].Parent().SpanID() != began[0].SpanContext().SpanID() {
			t.Errorf("handshakes: %v, connections: %v", began, opened)
		}
	})
}

// The line of a failed call names its server once, at the server's own address and at that of all as one, and its trace. Of
// a method, which is the client's word, it has the beginning only.
func TestCallFailedLine(t *testing.T) {
	dies := func() *fake {
		return &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.IsRequest() && m.Method != "initialize" {
				f.die()
				return true
			}
			return false
		}}
	}
	long := "long" + strings.Repeat("g", 1<<20)
	for _, tc := range []struct{ at, method, tool string }{{"", "tools/call", "fake__x"}, {"fake", "tools/call", "x"}, {"fake", long, "x"}} {
		var log bytes.Buffer
		spans := recorded{tracetest.NewSpanRecorder()}
		g := newGateway(Options{
			Servers: []ServerOptions{{Name: "fake", ServerSettings: ServerSettings{Prefix: "fake__"}, Adapter: dies()}, {Name: "other", ServerSettings: ServerSettings{Prefix: "other__"}, Adapter: dies()}},
			Log:     slog.New(slog.NewTextHandler(&log, nil)),
			Traces:  sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		})
		s := sessionAt(t, g, tc.at, "", "")
		do(t, s, "1", tc.method, `{"name":"`+tc.tool+`"}`)
		g.Close(context.Background())
		last := spans.Ended()[len(spans.Ended())-1]
		got := log.String()
		if strings.Count(got, `msg="call failed" server=fake method=`+tc.method[:4]) != 1 || !strings.Contains(got, "trace_id="+last.SpanContext().TraceID().String()) || len(got) > 1<<16 {
			t.Errorf("at %q:\n%.1000s", tc.at, got)
		}
	}
}

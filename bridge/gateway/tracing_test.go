package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
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

func parentOf(s trace.SpanContext) string {
	return fmt.Sprintf("00-%s-%s-%s", s.TraceID(), s.SpanID(), s.TraceFlags())
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

// B17: a client's trace goes on to the server by way of the bridge's own spans,
// from clients of both eras to servers of both; nothing else of the request
// changes. Where the client names its trace in _meta that counts, otherwise its
// headers.
func TestTraceContext(t *testing.T) {
	const state = `"tracestate":"congo=t61rcWkgMzE,rojo=00f067aa0ba902b7","baggage":"userId=alice"`
	header := http.Header{"Traceparent": {clientParent}, "Tracestate": {"congo=1", "rojo=2"}}
	for _, tc := range []struct {
		name, meta string // members of _meta
		header     http.Header
		own        bool   // the trace begins here
		state      string // at the server
	}{
		{"in _meta", `"traceparent":"` + clientParent + `",` + state, nil, false, "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"},
		{"in _meta and headers", `"traceparent":"` + clientParent + `"`, http.Header{"Traceparent": {strings.Replace(clientParent, "0af", "0ae", 1)}}, false, ""},
		{"in headers", `"a":1`, header, false, "congo=1,rojo=2"},
		{"twice in headers", `"a":1`, http.Header{"Traceparent": {clientParent, clientParent}}, true, ""},
		{"nowhere", `"a":1`, nil, true, ""},
		{"invalid in _meta", `"traceparent":"00-xyz-1-01","tracestate":"a=1"`, nil, true, ""},
		{"invalid in _meta, good in headers", `"traceparent":7`, header, false, "congo=1,rojo=2"},
		{"all zeros", `"traceparent":"00-00000000000000000000000000000000-` + clientSpan + `-01"`, nil, true, ""},
		{"state of 512 bytes", `"traceparent":"` + clientParent + `","tracestate":"a=` + strings.Repeat("x", 251) + `,b=` + strings.Repeat("y", 256) + `"`, nil, false, "a=" + strings.Repeat("x", 251) + ",b=" + strings.Repeat("y", 256)},
		{"state of more", `"traceparent":"` + clientParent + `","tracestate":"a=` + strings.Repeat("x", 252) + `,b=` + strings.Repeat("y", 256) + `"`, nil, false, ""},
		{"written with escapes", `"\u0074raceparent":"` + clientParent + `"`, nil, false, ""},
	} {
		for _, modernServer := range []bool{false, true} {
			for _, modernClient := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%t-%t", tc.name, modernClient, modernServer), func(t *testing.T) {
					old, stateless := &fake{}, &statelessFake{serve: func(s *statelessWire, m *jsonrpc.Message) bool {
						s.reply(m, `{"resultType":"complete","content":[]}`)
						return true
					}}
					o := ServerOptions{Name: "fake", Adapter: old}
					if modernServer {
						o.Adapter = stateless
					}
					traced(t, func(t *testing.T, g *gateway, spans recorded) {
						var a string
						const arguments = `"name":"echo","arguments":{"n":12345678901234567890, "x" : 1.50}`
						if modernClient {
							m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+arguments+`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},`+tc.meta+`}}}`)
							s, no := NewStateless("", "", m)
							if no != nil {
								t.Fatal(bridgetest.Text(no))
							}
							s.Back, s.Header = &stream{}, tc.header
							got, err := g.Call(t.Context(), m, *s)
							if err != nil {
								t.Fatal(err)
							}
							a = bridgetest.Text(got)
						} else {
							s, _ := begin(t, g, "")
							got, err := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+arguments+`,"_meta":{`+tc.meta+`}}}`), &Envelope{Header: tc.header}, nil)
							if err != nil {
								t.Fatal(err)
							}
							a = bridgetest.Text(got)
						}
						bridgetest.Contains(t, a, `"result"`)
						door, call := spans.pair(t, "tools/call echo")
						if own := door.SpanContext().TraceID().String() != clientTrace; own != tc.own {
							t.Errorf("the trace is %s", door.SpanContext().TraceID())
						}
						if !tc.own && (door.Parent().SpanID().String() != clientSpan || !door.Parent().IsRemote()) {
							t.Errorf("the parent is %v", door.Parent())
						}
						if n := len(door.Links()); (n == 1) != (tc.name == "in _meta and headers") {
							t.Errorf("%d links to spans of headers", n)
						}
						var got string
						if modernServer {
							got = last(stateless.wire(1).take(), "tools/call")
						} else {
							got = last(old.wire(1).log(), "tools/call")
						}
						bridgetest.Contains(t, got, arguments)
						meta := gjson.Get(got, "params._meta")
						if p := meta.Get("traceparent").Str; p != parentOf(call.SpanContext()) {
							t.Errorf("the server is told of %s, want %s in %s", p, parentOf(call.SpanContext()), got)
						}
						if n := strings.Count(got, "traceparent"); n != 1 {
							t.Errorf("the server is told %d times: %s", n, got)
						}
						if s := meta.Get("tracestate").Str; s != tc.state {
							t.Errorf("tracestate is %q, want %q", s, tc.state)
						}
						if want := strings.Contains(tc.meta, "baggage"); want != (meta.Get("baggage").Str == "userId=alice") {
							t.Errorf("baggage in %s", got)
						}
					}, o)
				})
			}
		}
	}
}

// Without tracing, what a client says of its trace goes on as it is, byte for
// byte, and headers stay here.
func TestTraceOff(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		const params = `{"_meta":{"traceparent" : "` + clientParent + `","tracestate":"a=1","baggage":"x=y"},"name":"echo"}`
		if _, err := s.Call(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`), &Envelope{Header: http.Header{"Traceparent": {clientParent}}}, nil); err != nil {
			t.Fatal(err)
		}
		bridgetest.Contains(t, last(f.wire(1).log(), "tools/call"), `"params":`+params+`}`)
		if f.wire(1).traces != 0 {
			t.Error("headers went on")
		}
	})
}

// What a span says: of whom, what, and how it ended. No text that a client or a
// server chose is longer than it may be.
func TestTraceSpans(t *testing.T) {
	long := strings.Repeat("ä", 200)
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		switch m.Name() {
		case "refused":
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"secret"}}`, m.ID))
		case "failed":
			f.answer(m, `{"content":[{"type":"text","text":"secret"}],"isError":true}`)
		case "deadly":
			f.die()
		default:
			return false
		}
		return true
	}}
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		spans := recorded{tracetest.NewSpanRecorder()}
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f, Address: bridge.Address{Network: bridge.TCP, Host: "tools.example.com", Port: 8443}}}, Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
		defer g.Close(context.Background())
		s, _ := begin(t, g, "")
		for _, tc := range []struct {
			method, params, name string
			want                 map[string]string
			status               codes.Code
		}{
			{"tools/call", `{"name":"echo"}`, "tools/call echo", map[string]string{"gen_ai.tool.name": "echo"}, codes.Unset},
			{"prompts/get", `{"name":"p"}`, "prompts/get p", map[string]string{"gen_ai.prompt.name": "p"}, codes.Unset},
			{"resources/read", `{"uri":"secret:x"}`, "resources/read", nil, codes.Unset},
			{"tools/call", `{"name":"refused"}`, "tools/call refused", map[string]string{"error.type": "-32602", "rpc.response.status_code": "-32602"}, codes.Error},
			{"tools/call", `{"name":"failed"}`, "tools/call failed", map[string]string{"error.type": "tool_error"}, codes.Error},
			{"tools/call", `{"name":"` + long + `"}`, "tools/call " + long[:128] + "…", nil, codes.Unset},
			{long, `{}`, long[:128] + "…", nil, codes.Unset},
			{"tools/call", `{"name":"deadly"}`, "tools/call deadly", map[string]string{"error.type": "lost"}, codes.Error},
		} {
			do(t, s, "1", tc.method, tc.params)
			door, call := spans.pair(t, tc.name)
			for _, span := range []sdktrace.ReadOnlySpan{door, call} {
				for key, value := range tc.want {
					if got := attr(span, key); got != value {
						t.Errorf("%s: %s is %q, want %q", tc.name, key, got, value)
					}
				}
				if span.Status().Code != tc.status {
					t.Errorf("%s: %v", tc.name, span.Status())
				}
				if all := fmt.Sprint(span.Attributes(), span.Status(), span.Events()); strings.Contains(all, "secret") {
					t.Errorf("%s says %s", tc.name, all)
				}
				if attr(span, "mcp.protocol.version") != "2025-11-25" || attr(span, "mcp_bridge.era") != "legacy" || attr(span, "mcp.method.name") == "" {
					t.Errorf("%s has %v", tc.name, span.Attributes())
				}
			}
			if attr(door, "jsonrpc.request.id") != "1" || attr(door, "network.transport") != "pipe" || (attr(door, "gen_ai.operation.name") == "execute_tool") != (tc.method == "tools/call") {
				t.Errorf("%s has %v", tc.name, door.Attributes())
			}
			if attr(call, "network.transport") != "tcp" || attr(call, "network.protocol.name") != "http" || attr(call, "server.address") != "tools.example.com" || attr(call, "server.port") != "8443" {
				t.Errorf("%s does not say where the server is: %v", tc.name, call.Attributes())
			}
			if key := attr(door, "mcp.session.id"); len(key) != 8 || !strings.HasPrefix(s.id, key) || attr(call, "mcp_bridge.server") != "fake" {
				t.Errorf("%s has %v and %v", tc.name, door.Attributes(), call.Attributes())
			}
		}
		door, _ := spans.pair(t, "tools/call deadly")
		bridgetest.Contains(t, out.String(), "trace_id="+door.SpanContext().TraceID().String())
		if opened, began := spans.named("connect fake"), spans.named("initialize"); len(opened) != 1 || len(began) != 1 || opened[0].Parent().SpanID() != began[0].SpanContext().SpanID() {
			t.Errorf("%d connections opened in %d handshakes", len(opened), len(began))
		}
	})
}

// A call that is refused at the door, and one whose client takes it back, have
// their spans too.
func TestTraceRefused(t *testing.T) {
	f := &fake{serve: func(_ *fakeWire, m *jsonrpc.Message) bool { return m.Name() == "slow" }}
	traced(t, func(t *testing.T, g *gateway, spans recorded) {
		s, _ := begin(t, g, "")
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
	}, ServerOptions{Name: "fake", Adapter: f})
}

// A client that does not want its trace recorded gets its way (ParentBased), and
// the server learns of it.
func TestTraceUnsampled(t *testing.T) {
	f := &fake{}
	traced(t, func(t *testing.T, g *gateway, spans recorded) {
		s, _ := begin(t, g, "")
		do(t, s, "1", "tools/call", `{"name":"echo","_meta":{"traceparent":"00-`+clientTrace+`-`+clientSpan+`-00"}}`)
		if n := len(spans.named("tools/call echo")); n != 0 {
			t.Errorf("%d spans", n)
		}
		p := gjson.Get(last(f.wire(1).log(), "tools/call"), "params._meta.traceparent").Str
		if !strings.HasPrefix(p, "00-"+clientTrace) || !strings.HasSuffix(p, "-00") || strings.Contains(p, clientSpan) {
			t.Errorf("the server is told of %s", p)
		}
	}, ServerOptions{Name: "fake", Adapter: f})
}

// What several servers are asked for one call is a part of that call.
func TestTraceAggregate(t *testing.T) {
	list := says(map[string]string{"tools/list": `{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`})
	one, two := &fake{serve: list}, &fake{serve: list}
	traced(t, func(t *testing.T, g *gateway, spans recorded) {
		a := visitor{meta: `,"traceparent":"` + clientParent + `"`}.call(t, g, "tools/list", "")
		bridgetest.Contains(t, a, "one_a", "two_a")
		asked := map[string]bool{}
		var door sdktrace.ReadOnlySpan
		for _, s := range spans.named("tools/list") {
			if s.SpanKind() == trace.SpanKindServer {
				door = s
			}
		}
		for _, s := range spans.named("tools/list") {
			if s.SpanKind() == trace.SpanKindClient {
				asked[attr(s, "mcp_bridge.server")] = true
				if s.Parent().SpanID() != door.SpanContext().SpanID() {
					t.Errorf("%v is no child of the call", s)
				}
			}
		}
		if len(asked) != 2 || door.SpanContext().TraceID().String() != clientTrace {
			t.Errorf("asked %v in trace %s", asked, door.SpanContext().TraceID())
		}
	}, ServerOptions{Name: "one", Adapter: one, ServerSettings: ServerSettings{Prefix: "one_", Cache: cache.Options{Off: true}}}, ServerOptions{Name: "two", Adapter: two, ServerSettings: ServerSettings{Prefix: "two_", Cache: cache.Options{Off: true}}})
}

// A question of the server is a part of the call that it is about: a child of
// what the server says of itself when it is in the same trace, else of the call.
func TestTraceQuestion(t *testing.T) {
	for _, same := range []bool{true, false} {
		theirs := ""
		f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method != "tools/call" {
				return m.IsResponse()
			}
			theirs = "00-" + strings.Repeat("e", 32) + "-" + strings.Repeat("5", 16) + "-01"
			if same {
				theirs = gjson.GetBytes(m.Meta(), "traceparent").Str[:36] + strings.Repeat("5", 16) + "-01"
			}
			f.say(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1.0,"_meta":{"traceparent":"` + theirs + `","k":1}}}`)
			return true
		}}
		traced(t, func(t *testing.T, g *gateway, spans recorded) {
			s, _ := begin(t, g, "")
			call := start(t, s, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask"}}`)
			asked := last(call.back.take(), "sampling/createMessage")
			if err := s.Answer(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":`+gjson.Get(asked, "id").Raw+`,"result":{}}`)); err != nil {
				t.Fatal(err, asked)
			}
			q := spans.named("sampling/createMessage")
			if len(q) != 1 {
				t.Fatalf("%d spans of questions", len(q))
			}
			bridgetest.Contains(t, asked, `"maxTokens":1.0,"_meta":{"traceparent":"`+parentOf(q[0].SpanContext())+`","k":1}`)
			s.End(bridge.ErrEnded)
			<-call.done
			door, _ := spans.pair(t, "tools/call ask")
			for _, key := range []string{"mcp.session.id", "mcp.protocol.version", "network.transport"} {
				if got := attr(q[0], key); got == "" || got != attr(door, key) {
					t.Errorf("%s of the question is %q, and of the call %q", key, got, attr(door, key))
				}
			}
			want := door.SpanContext().SpanID().String()
			if same {
				want = strings.Repeat("5", 16)
			}
			if q[0].Parent().SpanID().String() != want || q[0].SpanContext().TraceID() != door.SpanContext().TraceID() {
				t.Errorf("the question's parent is %v, want %s", q[0].Parent(), want)
			}
		}, ServerOptions{Name: "fake", Adapter: f})
	}
}

// A request that is sent once more on a new connection has a span for each time.
func TestTraceUnsent(t *testing.T) {
	times := 0
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Name() != "echo" {
			return false
		}
		if times++; times == 1 {
			f.Abort(mustNumber(t, m), &bridge.Error{Server: "fake", Kind: bridge.ErrUnsent, Public: "it has forgotten the session"})
			return true
		}
		return false
	}}
	traced(t, func(t *testing.T, g *gateway, spans recorded) {
		s, _ := begin(t, g, "")
		bridgetest.Contains(t, do(t, s, "1", "tools/call", `{"name":"echo"}`), `"result"`)
		all := spans.named("tools/call echo")
		if len(all) != 3 || attr(all[0], "error.type") != "unavailable" || all[1].Status().Code != codes.Unset {
			t.Errorf("%d spans: %v", len(all), all)
		}
	}, ServerOptions{Name: "fake", Adapter: f})
}

// What the bridge asks by itself carries nobody's trace, also where it began as a
// client's request.
func TestTraceOwn(t *testing.T) {
	f := &fake{}
	traced(t, func(t *testing.T, g *gateway, spans recorded) {
		s, _ := begin(t, g, "")
		do(t, s, "1", "tools/list", `{}`)
		spans.Reset()
		m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"traceparent":"`+clientParent+`","tracestate":"a=1","k":1},"cursor":"c"}}`)
		l := bare(g.table.Load().servers[0], s.caller)
		defer l.Close(t.Context())
		if _, err := l.Call(t.Context(), &bridge.Request{Message: m, From: s.caller}); err != nil {
			t.Fatal(err)
		}
		bridgetest.Contains(t, last(f.wire(2).log(), "tools/list"), `"params":{"_meta":{"k":1},"cursor":"c"}`)
		if n := len(spans.Ended()); n != 0 {
			t.Errorf("%d spans", n)
		}
	}, ServerOptions{Name: "fake", Adapter: f})
}

// A handshake is made again and again, and carries no trace.
func TestTraceHandshake(t *testing.T) {
	f := &fake{}
	traced(t, func(t *testing.T, g *gateway, spans recorded) {
		if _, a, err := initialize(t, g, "", strings.Replace(bridgetest.InitializeParams, `{`, `{"_meta":{"k":1,"traceparent":"`+clientParent+`"},`, 1)); err != nil {
			t.Fatal(a)
		}
		bridgetest.Contains(t, f.wire(1).log()[0], `{"_meta":{"k":1},"protocolVersion"`)
		if began := spans.named("initialize"); len(began) != 1 || began[0].Parent().SpanID().String() != clientSpan {
			t.Errorf("handshakes: %v", began)
		}
	}, ServerOptions{Name: "fake", Adapter: f})
}

// What is fetched for all who ask is in nobody's trace; whoever asked sees in
// their own where it came from.
func TestTraceCache(t *testing.T) {
	f := &fake{serve: says(map[string]string{"tools/list": `{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`})}
	traced(t, func(t *testing.T, g *gateway, spans recorded) {
		s, _ := begin(t, g, "")
		for i, want := range []string{"fetched for all who ask", "from the cache"} {
			do(t, s, "1", "tools/list", `{"_meta":{"traceparent":"`+clientParent+`"}}`)
			all := spans.named("tools/list")
			if len(all) != i+1 || len(all[i].Events()) != 1 || all[i].Events()[0].Name != want {
				t.Errorf("spans after list %d: %v", i+1, all)
			}
		}
		bridgetest.Lacks(t, strings.Join(f.wire(1).log(), "\n"), "traceparent")
	}, ServerOptions{Name: "fake", Adapter: f})
}

// A program that embeds the bridge may have a span of its own around a call.
func TestTraceEmbedded(t *testing.T) {
	f := &fake{}
	traced(t, func(t *testing.T, g *gateway, spans recorded) {
		outer := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
		m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
		s, _ := NewStateless("", "", m)
		s.Back, s.Header = &stream{}, http.Header{"Traceparent": {clientParent}}
		if _, err := g.Call(trace.ContextWithSpanContext(t.Context(), outer), m, *s); err != nil {
			t.Fatal(err)
		}
		if door, _ := spans.pair(t, "tools/list"); door.Parent().SpanID() != outer.SpanID() {
			t.Errorf("the parent is %v", door.Parent())
		}
	}, ServerOptions{Name: "fake", Adapter: f, ServerSettings: ServerSettings{Cache: cache.Options{Off: true}}})
}

// BenchmarkTracing measures a call of a session that goes to its server and back,
// without tracing, with spans that nobody keeps, and with spans.
func BenchmarkTracing(b *testing.B) {
	keep := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(discard{}))
	never := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	for _, tc := range []struct {
		name string
		to   trace.TracerProvider
	}{{"off", nil}, {"unsampled", never}, {"on", keep}} {
		b.Run(tc.name, func(b *testing.B) {
			br := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: still{}}}, Log: slog.New(slog.DiscardHandler), Traces: tc.to})
			defer br.Close(context.Background())
			s, _ := begin(b, br, "")
			m := bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{"progressToken":1}}}`)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Call(m, nil, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// still is an adapter to a server that answers at once.
type still struct{}

var quiet = &jsonrpc.Message{Result: []byte(`{"content":[]}`)}

func (still) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	return still{}, nil
}

func (still) Server() *bridge.Greeting {
	return &bridge.Greeting{Revision: "2025-11-25", Capabilities: []byte("{}"), Result: []byte(everything)}
}

func (still) Notify(context.Context, *bridge.Request) error { return nil }

func (still) Close(context.Context) error { return nil }

func (still) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method == "" {
		return nil, errors.New("no method")
	}
	m := *quiet
	return &m, nil
}

// discard takes spans and keeps none.
type discard struct{}

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

func (discard) OnEnd(sdktrace.ReadOnlySpan) {}

func (discard) Shutdown(context.Context) error { return nil }

func (discard) ForceFlush(context.Context) error { return nil }

// onStart is called when a span begins.
type onStart struct {
	*tracetest.SpanRecorder
	f func()
}

func (o onStart) OnStart(context.Context, sdktrace.ReadWriteSpan) { o.f() }

// What is known of a client is complete before others find its session: whoever ends
// it meanwhile reads that for the log.
func TestTraceInitializeComplete(t *testing.T) {
	var g *gateway
	seen := 0
	spans := onStart{tracetest.NewSpanRecorder(), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for s := range g.sessions {
			seen++
			bridgetest.Lacks(t, string(s.caller.Params), clientTrace)
		}
	}}
	f := &fake{}
	g = newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}, Log: slog.New(slog.DiscardHandler), Traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
	defer g.Close(context.Background())
	params := `{"_meta":{"traceparent":"` + clientParent + `"},` + bridgetest.InitializeParams[1:]
	if _, a, err := initialize(t, g, "", params); err != nil || seen == 0 {
		t.Fatalf("%s, %v; sessions seen: %d", a, err, seen)
	}
}

// Of a method, which is the client's word, a line of the log has the beginning only.
func TestCallFailedLine(t *testing.T) {
	var log bytes.Buffer
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if strings.HasPrefix(m.Method, "long") {
			f.die()
			return true
		}
		return false
	}}
	g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	s, _ := begin(t, g, "")
	do(t, s, "1", "long"+strings.Repeat("g", 1<<20), "{}")
	g.Close(context.Background())
	if got := log.String(); !strings.Contains(got, "call failed") || len(got) > 1<<16 {
		t.Errorf("%d bytes of log: %.300s", len(got), got)
	}
}

// The line of a failed call names its server once, at the server's own address and at that of all as one.
func TestCallFailedServer(t *testing.T) {
	dies := func() *fake {
		return &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
			if m.Method == "tools/call" {
				f.die()
				return true
			}
			return false
		}}
	}
	for _, tc := range []struct{ at, tool string }{{"", "fake__x"}, {"fake", "x"}} {
		var log bytes.Buffer
		g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", ServerSettings: ServerSettings{Prefix: "fake__"}, Adapter: dies()}, {Name: "other", ServerSettings: ServerSettings{Prefix: "other__"}, Adapter: dies()}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		s, _ := begin(t, g, tc.at)
		do(t, s, "1", "tools/call", `{"name":"`+tc.tool+`"}`)
		g.Close(context.Background())
		if got := log.String(); strings.Count(got, `msg="call failed" server=fake method=tools/call err=`) != 1 {
			t.Errorf("at %q:\n%s", tc.at, got)
		}
	}
}

func mustNumber(t *testing.T, m *jsonrpc.Message) int64 {
	n, err := strconv.ParseInt(string(m.ID), 10, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}

package tracing

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// A trace of a client's.
const (
	clientTrace  = "0af7651916cd43dd8448eb211c80319c"
	clientSpan   = "b7ad6b7169203331"
	clientParent = "00-" + clientTrace + "-" + clientSpan + "-01"
)

// stage is a server behind Tracing, whose spans are recorded.
type stage struct {
	*bridgetest.Upstream
	*Tracing
	spans *tracetest.SpanRecorder
	from  *bridge.Caller
	err   error // of calls
}

func newStage(answer *jsonrpc.Message) *stage {
	s := &stage{Upstream: bridgetest.NewUpstream(era.LatestLegacy, "{}"), spans: tracetest.NewSpanRecorder(), from: bridgetest.Caller(era.LatestLegacy, "", "{}")}
	s.Serve = func(*bridge.Request) *jsonrpc.Message { return answer }
	s.Tracing = New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans)), "9", func(remote string, _ http.Header) netip.Addr {
		at, _ := netip.ParseAddrPort(remote)
		return at.Addr()
	})
	return s
}

// Call implements bridge.Upstream.
func (s *stage) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	m, err := s.Upstream.Call(ctx, r)
	if s.err != nil {
		return nil, s.err
	}
	return m, err
}

// request makes a client's request to the server, and returns its two spans, if they are recorded.
func (s *stage) request(t *testing.T, ctx context.Context, m *jsonrpc.Message, h http.Header, peer string) (door, call sdktrace.ReadOnlySpan) {
	t.Helper()
	s.spans.Reset()
	ctx, span := s.Received(ctx, m, h, "fake", s.from, "12345678", peer)
	a, err := s.Tracing.Call(ctx, "fake", bridge.Address{Network: bridge.TCP, Host: "tools.example.com", Port: 8443}, s, &bridge.Request{Message: m, From: s.from})
	End(span, m.Method, a, err)
	ended := s.spans.Ended()
	if len(ended) != 2 {
		return nil, nil
	}
	if call, door = ended[0], ended[1]; call.Parent().SpanID() != door.SpanContext().SpanID() || call.SpanContext().TraceID() != door.SpanContext().TraceID() ||
		door.SpanKind() != trace.SpanKindServer || call.SpanKind() != trace.SpanKindClient {
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

// B17: a client's trace goes on to the server by way of the bridge's own spans; nothing else of the request changes. Where
// the client names its trace in _meta that counts, otherwise the span of a program around the bridge, or its headers.
func TestContext(t *testing.T) {
	const baggage = `,"baggage":"userId=alice"`
	long := "a=" + strings.Repeat("x", 251) + ",b=" + strings.Repeat("y", 256)
	header := http.Header{"Traceparent": {clientParent}, "Tracestate": {"congo=1", "rojo=2"}}
	outer := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	for _, tc := range []struct {
		name, meta string // members of _meta
		header     http.Header
		ctx        context.Context
		parent     string // the id of the span; empty for none
		state      string // at the server
		links      int
	}{
		{"in _meta", `"traceparent":"` + clientParent + `","tracestate":"congo=t6,rojo=00"` + baggage, nil, t.Context(), clientSpan, "congo=t6,rojo=00", 0},
		{"in _meta and headers", `"traceparent":"` + clientParent + `"`, http.Header{"Traceparent": {strings.Replace(clientParent, "0af", "0ae", 1)}}, t.Context(), clientSpan, "", 1},
		{"in headers", `"a":1`, header, t.Context(), clientSpan, "congo=1,rojo=2", 0},
		{"around the bridge, and in headers", `"a":1`, header, trace.ContextWithSpanContext(t.Context(), outer), outer.SpanID().String(), "", 0},
		{"twice in headers", `"a":1`, http.Header{"Traceparent": {clientParent, clientParent}}, t.Context(), "", "", 0},
		{"nowhere", `"a":1`, nil, t.Context(), "", "", 0},
		{"invalid in _meta", `"traceparent":"00-xyz-1-01","tracestate":"a=1"`, nil, t.Context(), "", "", 0},
		{"invalid in _meta, good in headers", `"traceparent":7`, header, t.Context(), clientSpan, "congo=1,rojo=2", 0},
		{"all zeros", `"traceparent":"00-00000000000000000000000000000000-` + clientSpan + `-01"`, nil, t.Context(), "", "", 0},
		{"state of 512 bytes", `"traceparent":"` + clientParent + `","tracestate":"` + long + `"`, nil, t.Context(), clientSpan, long, 0},
		{"state of more", `"traceparent":"` + clientParent + `","tracestate":"` + long + `y"`, nil, t.Context(), clientSpan, "", 0},
		{"written with escapes", `"\u0074raceparent":"` + clientParent + `"`, nil, t.Context(), clientSpan, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStage(bridgetest.Result(t, `{}`))
			const arguments = `"name":"echo","arguments":{"n":12345678901234567890, "x" : 1.50}`
			door, call := s.request(t, tc.ctx, bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+arguments+`,"_meta":{`+tc.meta+`}}}`), tc.header, "")
			if got := door.Parent(); tc.parent == "" && got.IsValid() || tc.parent != "" && (got.SpanID().String() != tc.parent || got.TraceID() != door.SpanContext().TraceID()) {
				t.Errorf("the parent is %v", got)
			}
			if n := len(door.Links()); n != tc.links {
				t.Errorf("%d links to spans of headers", n)
			}
			got := strings.Join(s.Got(), "\n")
			bridgetest.Contains(t, got, arguments)
			meta := gjson.Get(strings.TrimPrefix(got, "tools/call "), "_meta")
			want := fmt.Sprintf("00-%s-%s-01", call.SpanContext().TraceID(), call.SpanContext().SpanID())
			if meta.Get("traceparent").Str != want || strings.Count(got, "traceparent") != 1 || meta.Get("tracestate").Str != tc.state {
				t.Errorf("the server is told %s, want %s with %q", got, want, tc.state)
			}
			if strings.Contains(tc.meta, "baggage") != (meta.Get("baggage").Str == "userId=alice") {
				t.Errorf("baggage in %s", got)
			}
		})
	}
}

// A client that does not want its trace recorded gets its way, and the server learns of it. What the bridge asks by itself
// carries nobody's trace. Without tracing, all goes on as it is.
func TestUnrecorded(t *testing.T) {
	s := newStage(bridgetest.Result(t, `{}`))
	params := func(parent string) *jsonrpc.Message {
		return bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"traceparent" : "`+parent+`","tracestate":"a=1","k":1},"cursor":"c"}}`)
	}
	s.request(t, t.Context(), params("00-"+clientTrace+"-"+clientSpan+"-00"), nil, "")
	p := gjson.Get(strings.TrimPrefix(s.Got()[0], "tools/list "), "_meta.traceparent").Str
	if !strings.HasPrefix(p, "00-"+clientTrace) || !strings.HasSuffix(p, "-00") || strings.Contains(p, clientSpan) || len(s.spans.Ended()) != 0 {
		t.Errorf("the server is told of %s, and there are %d spans", p, len(s.spans.Ended()))
	}
	for off, want := range map[*Tracing]string{s.Tracing: `tools/list {"_meta":{"k":1},"cursor":"c"}`, nil: `tools/list {"_meta":{"traceparent" : "` + clientParent + `","tracestate":"a=1","k":1},"cursor":"c"}`} {
		if _, err := off.Call(t.Context(), "fake", bridge.Address{}, s, &bridge.Request{Message: params(clientParent), From: s.from}); err != nil {
			t.Fatal(err)
		}
		if got := s.Got(); len(got) != 1 || got[0] != want || len(s.spans.Ended()) != 0 {
			t.Errorf("the server got %q, want %s; %d spans", got, want, len(s.spans.Ended()))
		}
	}
}

// What a span says: of whom, what, and how it ended. No text that a client or a server chose is longer than it may be, and
// none is the text of an error.
func TestSpans(t *testing.T) {
	long := strings.Repeat("ä", 200)
	for _, tc := range []struct {
		method, params, answer string
		err                    error
		name                   string
		want                   map[string]string
		status                 codes.Code
	}{
		{"tools/call", `{"name":"echo"}`, `"result":{}`, nil, "tools/call echo", map[string]string{"gen_ai.tool.name": "echo", "gen_ai.operation.name": "execute_tool"}, codes.Unset},
		{"prompts/get", `{"name":"p"}`, `"result":{}`, nil, "prompts/get p", map[string]string{"gen_ai.prompt.name": "p", "gen_ai.operation.name": ""}, codes.Unset},
		{"resources/read", `{"uri":"secret:x"}`, `"result":{}`, nil, "resources/read", nil, codes.Unset},
		{"tools/call", `{"name":"refused"}`, `"error":{"code":-32602,"message":"secret"}`, nil, "tools/call refused", map[string]string{"error.type": "-32602", "rpc.response.status_code": "-32602"}, codes.Error},
		{"tools/call", `{"name":"failed"}`, `"result":{"content":[{"type":"text","text":"secret"}],"isError":true}`, nil, "tools/call failed", map[string]string{"error.type": "tool_error"}, codes.Error},
		{"tools/call", `{"name":"` + long + `"}`, `"result":{}`, nil, "tools/call " + long[:128] + "…", nil, codes.Unset},
		{long, `{}`, `"result":{}`, nil, long[:128] + "…", nil, codes.Unset},
		{"tools/call", `{"name":"deadly"}`, `"result":{}`, &bridge.Error{Kind: bridge.ErrLost, Public: "secret"}, "tools/call deadly", map[string]string{"error.type": "lost"}, codes.Error},
	} {
		s := newStage(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,`+tc.answer+`}`))
		s.err = tc.err
		m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"`+tc.method+`","params":`+tc.params+`}`)
		door, call := s.request(t, t.Context(), m, nil, "")
		for _, span := range []sdktrace.ReadOnlySpan{door, call} {
			for key, value := range tc.want {
				if got := attr(span, key); got != value {
					t.Errorf("%s: %s is %q, want %q", tc.name, key, got, value)
				}
			}
			if span.Name() != tc.name || span.Status().Code != tc.status || attr(span, "mcp.protocol.version") != "2025-11-25" || attr(span, "mcp_bridge.era") != "legacy" || attr(span, "mcp.method.name") == "" || attr(span, "mcp_bridge.server") != "fake" {
				t.Errorf("%s, want %s: %v %v", span.Name(), tc.name, span.Status(), span.Attributes())
			}
			if all := fmt.Sprint(span.Attributes(), span.Status(), span.Events()); strings.Contains(all, "secret") {
				t.Errorf("%s says %s", tc.name, all)
			}
		}
		if attr(door, "jsonrpc.request.id") != "7" || attr(door, "network.transport") != "pipe" || attr(door, "mcp.session.id") != "12345678" {
			t.Errorf("%s has %v", tc.name, door.Attributes())
		}
		if attr(call, "network.transport") != "tcp" || attr(call, "network.protocol.name") != "http" || attr(call, "server.address") != "tools.example.com" || attr(call, "server.port") != "8443" {
			t.Errorf("%s does not say where the server is: %v", tc.name, call.Attributes())
		}
		door, _ = s.request(t, t.Context(), m, http.Header{}, "192.0.2.1:99")
		if attr(door, "network.transport") != "tcp" || attr(door, "client.address") != "192.0.2.1" || attr(door, "client.port") != "99" {
			t.Errorf("%s does not say where the client is: %v", tc.name, door.Attributes())
		}
	}
}

// A question of the server is a part of the call that it is about: a child of what the server says of itself when it is in
// the same trace, else of the call.
func TestQuestion(t *testing.T) {
	for _, same := range []bool{true, false} {
		s := newStage(nil)
		_, about := s.Received(t.Context(), bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ask"}}`), nil, "fake", s.from, "12345678", "")
		parent, id := about.SpanContext().SpanID().String(), strings.Repeat("e", 32)
		if same {
			parent, id = strings.Repeat("5", 16), about.SpanContext().TraceID().String()
		}
		q := bridgetest.Question(t, "sampling/createMessage", `{"maxTokens":1.0,"_meta":{"traceparent":"00-`+id+`-`+strings.Repeat("5", 16)+`-01","k":1}}`)
		var answered *jsonrpc.Message
		asked, reply, _ := s.Question(about, nil, s.from.Revision, "12345678", q, func(m *jsonrpc.Message) { answered = m })
		reply(bridgetest.Result(t, `{}`))
		_, _, withdraw := s.Question(about, nil, s.from.Revision, "12345678", q, nil)
		withdraw()
		spans := s.spans.Ended()
		if len(spans) != 2 || answered == nil || attr(spans[1], "error.type") != "cancelled" {
			t.Fatalf("spans: %v; answered: %v", spans, answered)
		}
		is := spans[0].SpanContext()
		bridgetest.Contains(t, string(asked.Whole()), `"maxTokens":1.0,"_meta":{"traceparent":"00-`+is.TraceID().String()+`-`+is.SpanID().String()+`-01","k":1}`)
		if spans[0].Parent().SpanID().String() != parent || is.TraceID() != about.SpanContext().TraceID() || attr(spans[0], "mcp.session.id") != "12345678" || attr(spans[0], "network.transport") != "pipe" {
			t.Errorf("the question's parent is %v, want %s; it has %v", spans[0].Parent(), parent, spans[0].Attributes())
		}
	}
}

// Package tracing makes the spans of clients' requests and of calls to servers. It passes trace contexts to
// servers and clients as W3C Trace Context defines: in _meta and in HTTP headers.
//
// A nil *Tracing makes no spans, costs nothing, and leaves clients' trace contexts alone. Spans never contain the
// text of an error.
package tracing

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// These are the attributes of spans. Their names are those of the semantic conventions for MCP and generative AI, if
// the conventions define one.
const (
	attrMethod   = attribute.Key("mcp.method.name")
	attrRevision = attribute.Key("mcp.protocol.version") // the client's revision on server spans, the server's revision on client spans
	attrTool     = attribute.Key("gen_ai.tool.name")
	attrPrompt   = attribute.Key("gen_ai.prompt.name")
	attrCode     = attribute.Key("rpc.response.status_code")
	attrError    = attribute.Key("error.type")
	attrServer   = attribute.Key("mcp_bridge.server")
	attrEra      = attribute.Key("mcp_bridge.era")
	attrSession  = attribute.Key("mcp.session.id") // the start of the session's key, as in the log: the id itself gives access
	attrRequest  = attribute.Key("jsonrpc.request.id")
	attrAction   = attribute.Key("gen_ai.operation.name")
	attrNetwork  = attribute.Key("network.transport")
	attrProtocol = attribute.Key("network.protocol.name")
	attrClient   = attribute.Key("client.address")
	attrPort     = attribute.Key("client.port") // missing behind a proxy, which does not forward the port
	attrHost     = attribute.Key("server.address")
	attrHostPort = attribute.Key("server.port")
)

// Tracing makes the spans of calls. A nil Tracing makes no spans and costs nothing.
type Tracing struct {
	tracer trace.Tracer
	client func(remote string, h http.Header) netip.Addr
}

// New returns a Tracing with the provider; nil makes no spans. version is the program's version. client returns the
// address of the client of a request; nil means that there is none.
func New(p trace.TracerProvider, version string, client func(remote string, h http.Header) netip.Addr) *Tracing {
	if p == nil {
		return nil
	}
	return &Tracing{p.Tracer("github.com/mcp-bridge/bridge", trace.WithInstrumentationVersion(version)), client}
}

// Received starts the span of a client's request to the server of that name. session identifies the client's session
// in logs, and is empty without one. peer is the address that sent the request, or empty. The span joins the trace of
// the request, or else of ctx; without either it starts a trace. Without tracing, the span is nil.
func (t *Tracing) Received(ctx context.Context, m *jsonrpc.Message, h http.Header, server string, from *bridge.Caller, session, peer string) (context.Context, trace.Span) {
	if t == nil {
		return ctx, nil
	}
	ctx, ambient := remote(ctx, m.Meta(), h)
	var about []trace.SpanStartOption
	if ambient.IsValid() {
		about = append(about, trace.WithLinks(trace.Link{SpanContext: ambient}))
	}
	ctx, span, known := t.begin(ctx, trace.SpanKindServer, m, about...)
	if !span.IsRecording() {
		return ctx, span
	}
	known = append(dialogue(known, h, from.Revision, session), attrRequest.String(short(strings.Trim(string(m.ID), `"`))))
	if server != "" {
		known = append(known, attrServer.String(server))
	}
	if t.client != nil && peer != "" {
		if address := t.client(peer, h); address.IsValid() {
			known = append(known, attrClient.String(address.String()))
			if at, err := netip.ParseAddrPort(peer); err == nil && at.Addr().Unmap() == address.Unmap() {
				known = append(known, attrPort.Int(int(at.Port())))
			}
		}
	}
	span.SetAttributes(known...)
	return ctx, span
}

// dialogue appends the attributes of a client and its wire. h are the headers of the request; nil on a pipe.
func dialogue(to []attribute.KeyValue, h http.Header, revision, session string) []attribute.KeyValue {
	to = append(to, attrRevision.String(revision), attrEra.String(era.Name(revision)))
	if session != "" {
		to = append(to, attrSession.String(session))
	}
	if h == nil {
		return append(to, attrNetwork.String(bridge.Pipe))
	}
	return append(to, attrNetwork.String(bridge.TCP), attrProtocol.String("http"))
}

// begin starts a span for a request. If the span is recorded, begin returns the first attributes, to which the
// caller adds.
func (t *Tracing) begin(ctx context.Context, kind trace.SpanKind, m *jsonrpc.Message, o ...trace.SpanStartOption) (context.Context, trace.Span, []attribute.KeyValue) {
	method, key := short(m.Method), attribute.Key("")
	switch m.Method {
	case "tools/call":
		key = attrTool
	case "prompts/get":
		key = attrPrompt
	}
	name, about := method, ""
	if key != "" {
		if about = short(m.Name()); about != "" {
			name += " " + about
		}
	}
	ctx, span := t.tracer.Start(ctx, name, append(o, trace.WithSpanKind(kind))...)
	if !span.IsRecording() {
		return ctx, span, nil
	}
	known := append(make([]attribute.KeyValue, 0, 12), attrMethod.String(method))
	if key == attrTool {
		known = append(known, attrAction.String("execute_tool"))
	}
	if about != "" {
		known = append(known, key.String(about))
	}
	return ctx, span, known
}

// maxSpanText bounds the text of peers in a span, in bytes.
const maxSpanText = 128

// short returns the start of s, cut between characters.
func short(s string) string {
	return strings.ToValidUTF8(sanitize.Short(s, maxSpanText), "\uFFFD") // exporters drop a whole batch for invalid UTF-8
}

// End ends a span with the outcome of its request of that method. The span never contains the text of an error;
// the log does. A nil span is ignored.
func End(span trace.Span, method string, m *jsonrpc.Message, err error) {
	if span == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	failed := func(what string) {
		span.SetStatus(codes.Error, what)
		span.SetAttributes(attrError.String(what))
	}
	switch {
	case err != nil:
		failed(bridge.OutcomeOf(err).String())
	case m == nil:
	case m.Error != nil:
		code := short(gjson.GetBytes(m.Error, "code").Raw)
		failed(code)
		span.SetAttributes(attrCode.String(code))
	default:
		if o := bridge.OutcomeOfAnswer(method, m); o != bridge.Answered {
			failed(o.String())
		}
	}
}

// ID returns the log attribute of a span's trace. Without a span, the attribute is empty.
func ID(span trace.Span) slog.Attr {
	if span == nil {
		return slog.Attr{}
	}
	return slog.String("trace_id", span.SpanContext().TraceID().String())
}

// Untraced returns the params of initialize without a trace context, because connections use them repeatedly and
// for other requests.
func (t *Tracing) Untraced(params []byte) []byte {
	if t == nil || !rawjson.Mentions(params, keyTraceparent, keyTracestate) {
		return params
	}
	return Carrying(jsonrpc.NewRequest("tools/list", params), nil).Whole() // Carrying does not change initialize itself
}

// Following returns ctx with the span of call. Work that goes on after the end of the call's context thus belongs to
// the call's trace.
func (t *Tracing) Following(ctx, call context.Context) context.Context {
	if t == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, trace.SpanFromContext(call))
}

// Note adds an event to the span of a call.
func (t *Tracing) Note(ctx context.Context, what string) {
	if t != nil {
		trace.SpanFromContext(ctx).AddEvent(what)
	}
}

// Opening starts the span of a call's wait for a connection. The connection may serve other calls, too. ended is
// called with the outcome.
func (t *Tracing) Opening(ctx context.Context, server string) (ended func(error)) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return func(error) {}
	}
	_, span := t.tracer.Start(ctx, "connect "+server, trace.WithAttributes(attrServer.String(server)))
	return func(err error) { End(span, "", nil, err) }
}

// Call makes a call to a server at that address in a span of its own, and passes the trace context. A request of the
// bridge itself carries no trace context: it may serve several clients, but could carry the context of only one.
func (t *Tracing) Call(ctx context.Context, server string, at bridge.Address, up bridge.Upstream, r *bridge.Request) (*jsonrpc.Message, error) {
	if t == nil {
		return up.Call(ctx, r)
	}
	inner := *r
	if !trace.SpanContextFromContext(ctx).IsValid() {
		inner.Message = Carrying(r.Message, nil)
		return up.Call(ctx, &inner)
	}
	ctx, span, known := t.begin(ctx, trace.SpanKindClient, r.Message)
	if span.IsRecording() {
		known = append(known, attrServer.String(server))
		if at.Network != "" {
			known = append(known, attrNetwork.String(at.Network))
		}
		if at.Network == bridge.TCP {
			known = append(known, attrProtocol.String("http"))
		}
		if at.Host != "" {
			known = append(known, attrHost.String(at.Host), attrHostPort.Int(at.Port))
		}
		if g := up.Server(); g != nil {
			known = append(known, attrRevision.String(g.Revision), attrEra.String(era.Name(g.Revision)))
		}
		span.SetAttributes(known...)
	}
	inner.Trace = traceOf(span.SpanContext())
	inner.Message = Carrying(r.Message, traceMembers(inner.Trace))
	m, err := up.Call(ctx, &inner)
	End(span, r.Method, m, err)
	return m, err
}

// Question starts the span of a server's question about a call, whose request had headers h. revision is the client's
// revision, and session as in Received. Question returns the question and the reply to use instead, and a function to
// call when the question is withdrawn.
func (t *Tracing) Question(about trace.Span, h http.Header, revision, session string, m *jsonrpc.Message, reply func(*jsonrpc.Message)) (*jsonrpc.Message, func(*jsonrpc.Message), func()) {
	ctx, method := trace.ContextWithSpan(context.Background(), about), m.Method
	// The question may carry the context of a span that the server started during the call. A context of another
	// trace does not belong to this client.
	theirs, _ := remote(context.Background(), m.Meta(), nil)
	if trace.SpanContextFromContext(theirs).TraceID() == about.SpanContext().TraceID() {
		ctx = theirs
	}
	_, span, known := t.begin(ctx, trace.SpanKindClient, m)
	if span.IsRecording() {
		span.SetAttributes(dialogue(known, h, revision, session)...)
	}
	if m.Params != nil { // a strict client may reject unexpected params
		m = Carrying(m, traceMembers(traceOf(span.SpanContext())))
	}
	return m,
		func(m *jsonrpc.Message) {
			End(span, method, m, nil)
			reply(m)
		},
		func() { End(span, method, nil, bridge.ErrCancelled) }
}

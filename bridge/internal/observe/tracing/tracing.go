// Package tracing makes the spans of clients' requests and of calls to servers, and
// tells servers and clients of them, as W3C Trace Context does: in _meta and in
// headers of HTTP.
//
// A nil *Tracing makes none, costs nothing, and leaves what clients say of their
// traces as it is. No text of an error becomes a part of a span.
package tracing

import (
	"context"
	"log/slog"
	"net/http"
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

// The attributes of spans: those of the semantic conventions for MCP and
// generative AI where they have a name, and names of our own beyond.
const (
	attrMethod   = attribute.Key("mcp.method.name")
	attrRevision = attribute.Key("mcp.protocol.version") // the client's at the door, the server's beyond
	attrTool     = attribute.Key("gen_ai.tool.name")
	attrPrompt   = attribute.Key("gen_ai.prompt.name")
	attrCode     = attribute.Key("rpc.response.status_code")
	attrError    = attribute.Key("error.type")
	attrServer   = attribute.Key("mcp_bridge.server")
	attrEra      = attribute.Key("mcp_bridge.era")
	attrSession  = attribute.Key("mcp_bridge.session") // the beginning of its key, as in the log; not its id
)

// Tracing makes the spans of calls. nil makes none and costs nothing.
type Tracing struct{ tracer trace.Tracer }

// New makes the spans with a provider; nil makes none. version is that of the
// program.
func New(p trace.TracerProvider, version string) *Tracing {
	if p == nil {
		return nil
	}
	return &Tracing{p.Tracer("github.com/mcp-bridge/bridge", trace.WithInstrumentationVersion(version))}
}

// Received begins the span of a client's request to the server of that name.
// session tells the client's session from others in a log; it is empty without
// one. The span belongs to the trace that the request
// names, or that ctx has; without one, it begins a trace. It is nil without
// tracing.
func (t *Tracing) Received(ctx context.Context, m *jsonrpc.Message, h http.Header, server string, from *bridge.Caller, session string) (context.Context, trace.Span) {
	if t == nil {
		return ctx, nil
	}
	ctx, span, known := t.begin(remote(ctx, m.Meta(), h), trace.SpanKindServer, m)
	if !span.IsRecording() {
		return ctx, span
	}
	known = append(known, attrRevision.String(from.Revision), attrEra.String(era.Name(from.Revision)))
	if server != "" {
		known = append(known, attrServer.String(server))
	}
	if session != "" {
		known = append(known, attrSession.String(session))
	}
	span.SetAttributes(known...)
	return ctx, span
}

// begin begins a span about a request. If it is recorded, it is to get the
// attributes that are returned, and more: what nobody sees is not made.
func (t *Tracing) begin(ctx context.Context, kind trace.SpanKind, m *jsonrpc.Message) (context.Context, trace.Span, []attribute.KeyValue) {
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
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	if !span.IsRecording() {
		return ctx, span, nil
	}
	known := append(make([]attribute.KeyValue, 0, 6), attrMethod.String(method))
	if about != "" {
		known = append(known, key.String(about))
	}
	return ctx, span, known
}

// maxSpanText bounds what strangers write into a span, in bytes.
const maxSpanText = 128

// short returns the beginning of s, cut between characters.
func short(s string) string {
	return strings.ToValidUTF8(sanitize.Short(s, maxSpanText), "\uFFFD") // exporters drop a whole batch for a text that is not
}

// End ends a span with the outcome of its request, of that method. No text of an
// error becomes a part of it: that is the log's. A nil span is none.
func End(span trace.Span, method string, a *jsonrpc.Message, err error) {
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
	case a == nil:
	case a.Error != nil:
		code := short(gjson.GetBytes(a.Error, "code").Raw)
		failed(code)
		span.SetAttributes(attrCode.String(code))
	default:
		if o := bridge.OutcomeOfAnswer(method, a); o != bridge.Answered {
			failed(o.String())
		}
	}
}

// ID is for the log: how a line is found from its trace. It is empty,
// and logged as nothing, without one.
func ID(span trace.Span) slog.Attr {
	if span == nil {
		return slog.Attr{}
	}
	return slog.String("trace_id", span.SpanContext().TraceID().String())
}

// Untraced returns the params of initialize without what they say of a trace:
// connections are opened with them again and again, and for others too.
func (t *Tracing) Untraced(params []byte) []byte {
	if t == nil || !rawjson.Mentions(params, keyTraceparent, keyTracestate) {
		return params
	}
	return Carrying(jsonrpc.NewRequest("tools/list", params), nil).Whole() // of initialize itself nothing is changed
}

// Following returns ctx with the span of another one: what is done for a call
// under another life than its own is a part of it all the same.
func (t *Tracing) Following(ctx, call context.Context) context.Context {
	if t == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, trace.SpanFromContext(call))
}

// Note writes what happened to a call into its span.
func (t *Tracing) Note(ctx context.Context, what string) {
	if t != nil {
		trace.SpanFromContext(ctx).AddEvent(what)
	}
}

// Opening begins the span of a call's waiting for a connection, which may be
// opened for others too. ended is called with its outcome.
func (t *Tracing) Opening(ctx context.Context, server string) (ended func(error)) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return func(error) {}
	}
	_, span := t.tracer.Start(ctx, "connect "+server, trace.WithAttributes(attrServer.String(server)))
	return func(err error) { End(span, "", nil, err) }
}

// Call makes a call to a server in a span of its own, which the server is told
// of. What the bridge asks by itself is in no trace, and carries none: what was
// asked for the sake of one client and answers several would carry the one's.
func (t *Tracing) Call(ctx context.Context, server string, up bridge.Upstream, r *bridge.Request) (*jsonrpc.Message, error) {
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
		if s := up.Server(); s != nil {
			known = append(known, attrRevision.String(s.Revision), attrEra.String(era.Name(s.Revision)))
		}
		span.SetAttributes(known...)
	}
	inner.Trace = traceOf(span.SpanContext())
	inner.Message = Carrying(r.Message, traceMembers(inner.Trace))
	a, err := up.Call(ctx, &inner)
	End(span, r.Method, a, err)
	return a, err
}

// Question begins the span of a server's question about a call. It returns the
// Question and its reply as they go on, and what is called when the question is
// withdrawn.
func (t *Tracing) Question(about trace.Span, q *jsonrpc.Message, reply func(*jsonrpc.Message)) (*jsonrpc.Message, func(*jsonrpc.Message), func()) {
	ctx, method := trace.ContextWithSpan(context.Background(), about), q.Method
	// The server may have got further since it was called; whatever it says of
	// other traces is not this client's.
	theirs := remote(context.Background(), q.Meta(), nil)
	if trace.SpanContextFromContext(theirs).TraceID() == about.SpanContext().TraceID() {
		ctx = theirs
	}
	_, span, known := t.begin(ctx, trace.SpanKindClient, q)
	span.SetAttributes(known...)
	if q.Params != nil { // a strict client may refuse some where there should be none
		q = Carrying(q, traceMembers(traceOf(span.SpanContext())))
	}
	return q,
		func(a *jsonrpc.Message) {
			End(span, method, a, nil)
			reply(a)
		},
		func() { End(span, method, nil, bridge.ErrCancelled) }
}

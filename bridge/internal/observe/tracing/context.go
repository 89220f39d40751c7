package tracing

import (
	"bytes"
	"context"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// These are the names in _meta. The HTTP headers have the same names, but begin with a capital.
const (
	keyTraceparent = "traceparent"
	keyTracestate  = "tracestate"
)

// maxTraceState bounds tracestate, in bytes. A longer one is dropped, as W3C Trace Context allows.
const maxTraceState = 512

// shortState returns the tracestate, or "" if it is too long.
func shortState(state string) string {
	if len(state) > maxTraceState {
		return ""
	}
	return state
}

// carrier is a bridge.Trace as the propagators of OpenTelemetry read it.
type carrier bridge.Trace

var _ propagation.TextMapCarrier = carrier{}

func (c carrier) Get(key string) string {
	switch key {
	case keyTraceparent:
		return c.Parent
	case keyTracestate:
		return c.State
	}
	return ""
}

// Set implements propagation.TextMapCarrier, and does nothing.
func (carrier) Set(string, string) {}

func (carrier) Keys() []string { return []string{keyTraceparent, keyTracestate} }

// remote returns ctx with the trace of a message: the one in _meta, or else the one in ctx, or else the one in the
// headers. remote ignores invalid traces. If _meta and the headers name different spans, ambient is the span in the
// headers; otherwise it is not valid.
func remote(ctx context.Context, meta []byte, h http.Header) (_ context.Context, ambient trace.SpanContext) {
	headers := func(ctx context.Context) context.Context {
		parents := h["Traceparent"]
		if len(parents) != 1 {
			return ctx
		}
		named, _ := extract(ctx, bridge.Trace{Parent: parents[0], State: shortState(strings.Join(h["Tracestate"], ","))})
		return named
	}
	if rawjson.Mentions(meta, keyTraceparent) {
		found := gjson.GetManyBytes(meta, keyTraceparent, keyTracestate)
		var t bridge.Trace
		if found[0].Type == gjson.String {
			t.Parent = found[0].Str
		}
		if found[1].Type == gjson.String {
			t.State = shortState(found[1].Str)
		}
		if named, ok := extract(ctx, t); ok {
			if ambient = trace.SpanContextFromContext(headers(context.Background())); ambient.Equal(trace.SpanContextFromContext(named)) {
				ambient = trace.SpanContext{}
			}
			return named, ambient
		}
	}
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, ambient
	}
	return headers(ctx), ambient
}

// extract returns ctx with the trace t, if t is valid.
func extract(ctx context.Context, t bridge.Trace) (context.Context, bool) {
	named := propagation.TraceContext{}.Extract(context.Background(), carrier(t))
	s := trace.SpanContextFromContext(named)
	if !s.IsValid() {
		return ctx, false
	}
	return trace.ContextWithRemoteSpanContext(ctx, s), true
}

// traceOf returns the trace context of a span for a peer.
func traceOf(s trace.SpanContext) (t bridge.Trace) {
	if !s.IsValid() {
		return t
	}
	id, span := s.TraceID(), s.SpanID()
	b := append(make([]byte, 0, len("00-")+32+1+16+len("-00")), "00-"...)
	b = append(hex.AppendEncode(b, id[:]), '-')
	b = append(hex.AppendEncode(b, span[:]), '-')
	t.Parent = string(hex.AppendEncode(b, []byte{byte(s.TraceFlags() & trace.FlagsSampled)}))
	t.State = shortState(s.TraceState().String())
	return t
}

func traceMembers(t bridge.Trace) []byte {
	if t.Parent == "" {
		return nil
	}
	out := make([]byte, 0, 80+len(t.State))
	out = append(append(append(out, `"traceparent":"`...), t.Parent...), '"')
	if t.State != "" {
		out = append(append(out, `,"tracestate":`...), rawjson.Quote(t.State)...)
	}
	return out
}

// Carrying returns the request with these trace members in _meta, in place of the request's own trace members; nil
// removes those. All other bytes stay. Carrying does not change initialize and ping, because old servers may refuse
// unknown members in them.
func Carrying(m *jsonrpc.Message, members []byte) *jsonrpc.Message {
	meta := m.Meta()
	switch {
	case m.Method == "initialize" || m.Method == "ping":
		return m
	case meta == nil && members == nil, meta != nil && (meta[0] != '{' || members == nil && !rawjson.Mentions(meta, keyTraceparent, keyTracestate)):
		return m
	case m.Params == nil:
		return &jsonrpc.Message{
			ID:     m.ID,
			Method: m.Method,
			Params: slices.Concat([]byte(`{"_meta":{`), members, []byte("}}")),
		}
	}
	if meta == nil && bytes.HasPrefix(m.Params, []byte(`{"_meta":`)) { // the bridge made m without parsing it
		return Carrying(m.Clone(), members)
	}
	place, end := bytes.IndexByte(m.Params, '{'), 0
	if meta == nil {
		end = place + 1 + rawjson.Space(m.Params[place+1:], 0)
	} else {
		place = cap(m.Params) - cap(meta) // meta is a part of params' backing array
		end = place + len(meta)
	}
	if !m.Untouched(place, end) { // earlier edits must be visible
		return Carrying(m.WithParams(m.Whole()), members)
	}
	at := place + 1
	if meta == nil {
		text := slices.Concat([]byte(`"_meta":{`), members, []byte("}"))
		if !rawjson.IsEmpty(m.Params) {
			text = append(text, ',')
		}
		return m.Edited(jsonrpc.Edit{
			From: at,
			To:   at,
			Text: text,
		})
	}
	gone, emptied := jsonrpc.Omit(meta, place, func(name string) bool { return name == keyTraceparent || name == keyTracestate })
	if members != nil && !emptied && !rawjson.IsEmpty(meta) {
		members = slices.Concat(members, []byte(","))
	}
	return m.Edited(append([]jsonrpc.Edit{{
		From: at,
		To:   at,
		Text: members,
	}}, gone...)...)
}

package tracing_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/tracing"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lift"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// noting is a modern server that keeps the last request that it got.
type noting struct {
	bridge.Upstream
	m *jsonrpc.Message
}

func (n *noting) Server() *bridge.Greeting { return &bridge.Greeting{Revision: era.LatestModern} }

func (n *noting) Call(_ context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	n.m = r.Message
	return jsonrpc.NewResult(nil, []byte(`{"capabilities":{"logging":{}}}`)), nil
}

// lifting returns what a modern server gets of the requests of a session that wants
// log messages.
func lifting(f *testing.F) func(testing.TB, *jsonrpc.Message) *jsonrpc.Message {
	from := &bridge.Caller{Revision: era.Rev20251125, Capabilities: []byte("{}"), Params: []byte(bridgetest.InitializeParams)}
	server := &noting{}
	up := lift.New(from, bridge.Nobody{}, &lift.Options{Log: slog.New(slog.DiscardHandler), Rewrites: &list.Rewrites{}}).Wrap(server)
	call := func(t testing.TB, m *jsonrpc.Message) *jsonrpc.Message {
		if a, err := up.Call(t.Context(), &bridge.Request{Message: m, From: from}); err != nil || a.Error != nil {
			t.Fatal(bridgetest.Text(a), err)
		}
		return server.m
	}
	call(f, bridgetest.Parse(f, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`))
	return call
}

// FuzzCarrying: whatever has been changed in a request on its way, it carries the
// trace context afterwards, and all else that it had.
func FuzzCarrying(f *testing.F) {
	f.Add(`{"name":"x","_meta":{"traceparent":"x","k":[1]}}`, uint8(0))
	f.Add(`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":"x"}`, uint8(1))
	f.Add(`{"task":{},"name":"x"}`, uint8(1))
	f.Add(`{ "task":1 }`, uint8(1))
	f.Add(`{"name":"x","_meta":{"progressToken":1}}`, uint8(2))
	f.Add(`{"arguments":{},"name":"y"}`, uint8(6))
	f.Add(`{}`, uint8(3))
	lifted := lifting(f)
	f.Fuzz(func(t *testing.T, params string, changes uint8) {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`))
		if err != nil || m.Params == nil || m.Method != "tools/call" {
			return
		}
		switch { // no request is both
		case changes&1 != 0:
			m = era.Lowered(m, era.Rev20241105)
		case changes&2 != 0 && (m.Meta() == nil || m.Meta()[0] == '{'):
			m = lifted(t, m)
		}
		if changes&4 != 0 {
			m = m.Renamed("renamed")
		}
		before, ok := paramsOf(m)
		if !ok {
			return // the change itself is another test's
		}
		c := tracing.Carrying(m, []byte(`"traceparent":"P","tracestate":"S"`))
		after, ok := paramsOf(c)
		if !ok {
			t.Fatalf("%s is not JSON", c.Append(nil, nil, nil))
		}
		if again, ok := paramsOf(c.Clone()); !ok || asJSON(again) != asJSON(after) {
			t.Errorf("a copy is %s", asJSON(again))
		}
		meta, isObject := before["_meta"].(map[string]any)
		if _, has := before["_meta"]; has && !isObject {
			if asJSON(before) != asJSON(after) {
				t.Errorf("%s became %s", asJSON(before), asJSON(after))
			}
			return
		}
		if meta == nil {
			meta = map[string]any{}
		}
		meta["traceparent"], meta["tracestate"] = "P", "S"
		before["_meta"] = meta
		if asJSON(before) != asJSON(after) {
			t.Errorf("%s\nbecame %s", asJSON(before), asJSON(after))
		}
		if n := strings.Count(asJSON(after), `"traceparent":"P"`); n < 1 {
			t.Errorf("%s carries nothing", asJSON(after))
		}
	})
}

func paramsOf(m *jsonrpc.Message) (map[string]any, bool) {
	var line struct{ Params map[string]any }
	d := json.NewDecoder(strings.NewReader(string(m.Append(nil, nil, nil))))
	d.UseNumber()
	err := d.Decode(&line)
	return line.Params, err == nil && line.Params != nil
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

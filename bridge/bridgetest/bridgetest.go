// Package bridgetest has helpers for tests of the core's packages: it plays clients and servers, and compares texts.
// Package adaptertest has the helpers for tests of adapters.
package bridgetest

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// InitializeParams is the params of initialize from a client that can answer all kinds of questions.
const InitializeParams = `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"roots":{},"sampling":{}},"clientInfo":{"name":"c","version":"1"}}`

// Parse returns the message of a text, or fails the test.
func Parse(t testing.TB, text string) *jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%s) = %v", text, err)
	}
	return m
}

// Text returns m as text, or "" if m is nil.
func Text(m *jsonrpc.Message) string {
	if m == nil {
		return ""
	}
	return string(m.Append(nil, m.ID, nil))
}

// Contains reports an error for each text that is missing in got.
func Contains(t testing.TB, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("got  %s\nwant %s in it", got, w)
		}
	}
}

// Lacks reports an error for each of the texts that got contains.
func Lacks(t testing.TB, got string, unwanted ...string) {
	t.Helper()
	for _, u := range unwanted {
		if strings.Contains(got, u) {
			t.Errorf("got  %s\nwant it without %s", got, u)
		}
	}
}

// Package bridgetest has what tests of the core's packages share: messages from
// texts, and comparisons of texts. adaptertest has what tests of adapters share.
package bridgetest

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// InitializeParams is what a client that can be asked things says in initialize.
const InitializeParams = `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"roots":{},"sampling":{}},"clientInfo":{"name":"c","version":"1"}}`

// Parse makes a message of its text, or fails the test.
func Parse(t testing.TB, text string) *jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%s) = %v", text, err)
	}
	return m
}

// Text returns a message as text; of nil, nothing.
func Text(m *jsonrpc.Message) string {
	if m == nil {
		return ""
	}
	return string(m.Append(nil, m.ID, nil))
}

// Contains reports an error for each of the texts that got lacks.
func Contains(t testing.TB, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("got  %s\nwant %s in it", got, w)
		}
	}
}

// Lacks reports an error for each of the texts that got has.
func Lacks(t testing.TB, got string, unwanted ...string) {
	t.Helper()
	for _, u := range unwanted {
		if strings.Contains(got, u) {
			t.Errorf("got  %s\nwant nothing of %s", got, u)
		}
	}
}

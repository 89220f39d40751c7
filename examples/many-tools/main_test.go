package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A client lists the three tools and those that are always listed, finds the others, and calls them.
func TestSearch(t *testing.T) {
	b, err := newBridge("127.0.0.1:0", "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(b.Handler())
	t.Cleanup(func() {
		b.Close(context.Background())
		site.Close()
	})
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			s, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, nil).
				Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: site.URL + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			listed, err := s.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range listed.Tools {
				names = append(names, strings.SplitN(tool.Name, "__", 2)[0])
			}
			if got, want := strings.Join(names, " "), "search_tools read_tool call_tool"+strings.Repeat(" help", 7); got != want {
				t.Errorf("the list has %s, want %s", got, want)
			}
			call := func(tool string, args map[string]any) (string, bool) {
				t.Helper()
				r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
				if err != nil {
					t.Fatalf("%s: %v", tool, err)
				}
				return r.Content[0].(*mcp.TextContent).Text, r.IsError
			}
			for query, first := range map[string]string{
				"book a meeting room":         "calendar__",
				"remove a vehicle":            "fleet__delete_vehicle",
				"list all invoices":           "billing__list_invoice",
				"add a new employee's salary": "payroll__create_salary",
			} {
				text, _ := call("search_tools", map[string]any{"query": query})
				var found struct{ Name string }
				if err := json.NewDecoder(strings.NewReader(text)).Decode(&found); err != nil || !strings.HasPrefix(found.Name, first) {
					t.Errorf("%q finds %.200s, want %s first", query, text, first)
				}
			}
			made, _ := call("call_tool", map[string]any{"name": "billing__create_invoice", "arguments": map[string]any{"name": "for " + revision}})
			if read, _ := call("read_tool", map[string]any{"name": "billing__search_invoice", "arguments": map[string]any{"text": revision}}); read != "["+made+"]" {
				t.Errorf("the invoice %s is found as %s", made, read)
			}
			if text, refused := call("read_tool", map[string]any{"name": "billing__delete_invoice", "arguments": map[string]any{"id": 1}}); !refused || !strings.Contains(text, "call_tool") {
				t.Errorf("read_tool deletes: %s", text)
			}
		})
	}
}

// tenInvoices makes ten calls, and returns what the model needs of their results.
const tenInvoices = `
const all = await Promise.all(Array.from({ length: 10 }, (_, i) => tools.billing__create_invoice({ name: "for customer " + i })));
const found = await tools.billing__search_invoice({ text: "for customer" });
console.log("made", all.length);
return { made: all.length, found: found.length };`

// One script does the work of eleven calls, and the model reads one line.
func TestScript(t *testing.T) {
	if testing.Short() {
		t.Skip("starts programs")
	}
	program := filepath.Join(t.TempDir(), "many-tools")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil { // without the race detector, which needs more memory than a script gets
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := newBridge("127.0.0.1:0", program, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(b.Handler())
	defer site.Close()
	defer b.Close(context.Background())
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		s, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, nil).
			Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: site.URL + "/mcp?tools=code"}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for code, want := range map[string]string{
			tenInvoices: `{"made":10,"found":`,
			`try { await tools.nobody__knows({}) } catch (e) { return e.message }`: "nown tool",
		} {
			r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_code", Arguments: map[string]any{"code": code}})
			if err != nil {
				t.Fatal(err)
			}
			if text := r.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, want) {
				t.Errorf("%s: %s: %s, want %s", revision, code, text, want)
			}
		}
	}
}

package stdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// FuzzDownstream has a client write anything at all after, or without, a
// handshake. The output is messages on lines and nothing else,
// and every request has exactly one answer.
func FuzzDownstream(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, tool("2", "echo", `{"a":1}`) + "\n" + tool(`"x"`, "steps", `{"n":2}`), tool("1", "none", "{}") + "\n" + tool("1", "log", "{}"),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`,
		`{"jsonrpc":"2.0","id":null,"method":"x"}`, `[]`, `[{"jsonrpc":"2.0","id":1,"method":"ping"},5,{}]`, `[[[[`, `{"id":7}`, "\xff", "", "\xef\xbb\xbf\r\n\n {}",
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		keyed("1", "tools/list", "") + "\n" + `{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n" + fmt.Sprintf(initialize, "2025-06-18") + "\n" + keyed("1", "tools/call", `"name":"echo"`),
		keyed("2", "subscriptions/listen", `"notifications":{}`) + "\n" + keyed("3", "server/discover", "") + "\n[" + keyed("4", "x", "") + "]\n" + keyed("5", "initialize", "") + "\n" + keyed("6", "tools/call", `"name":"log"`),
		`{"jsonrpc":"2.0","id":"\u0031","method":"x","params":{"x":"` + strings.Repeat("x", 70_000) + `"}}` + "\n" + `{"params":{"x":"` + strings.Repeat("\\\"", 40_000) + `"},"id":"\q","method":"x"}`,
		fmt.Sprintf(initialize, "2025-03-26") + "\n" + fmt.Sprintf(initialize, "x"), `{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}}`,
	} {
		f.Add([]byte(text), []byte{}, true)
		f.Add([]byte(text), []byte{3, 200}, false)
	}
	both := wiretest.Both{Legacy: &wiretest.Server{}, Modern: &wiretest.Modern{}}
	g := gateway.New(gateway.Options{Servers: []gateway.ServerOptions{{Name: "fake", Adapter: both}}, Log: slog.New(slog.DiscardHandler)})
	f.Cleanup(func() { g.Close(context.Background()) })
	f.Fuzz(func(t *testing.T, text, cuts []byte, shake bool) {
		for _, slow := range []string{"ask", "wait", "late", "large", "quit", "steps", "cancelled", "linger", "flood", "fail", `\u`} {
			if bytes.Contains(text, []byte(slow)) && len(text) < 60_000 && (slow != "steps" || len(text) > 300) {
				return // these take their time, on purpose, or leave it open whether there is an answer
			}
		}
		input := text
		if shake {
			input = append([]byte(fmt.Sprintf(initialize, "2025-03-26")+"\n"+initialized+"\n"), text...)
		}
		out := &adaptertest.Log{}
		if err := Serve(t.Context(), g, "fake", &pieces{text: bytes.Clone(input), cuts: cuts}, out, DownstreamOptions{MaxMessage: 1000, Log: slog.New(slog.DiscardHandler)}); err != nil && !errors.Is(err, errUnread) {
			t.Fatalf("Serve(%.300q) = %v", input, err)
		}
		answers := map[string]int{}
		for _, line := range lines(out) {
			if line == "" && len(lines(out)) == 1 {
				break // there was nothing
			}
			m, err := jsonrpc.Parse([]byte(line))
			if err != nil {
				t.Fatalf("Serve(%.300q) wrote %.300q: %v", input, line, err)
			}
			if m.IsResponse() && m.ID != nil {
				answers[string(m.ID)]++
			}
		}
		want, unsure := map[string]int{}, map[string]int{}
		for _, line := range bytes.Split(input, []byte("\n")) {
			if jsonrpc.IsBatch(line) {
				return // which is answered in its own ways
			}
			if m, err := jsonrpc.Parse(line); err == nil && m.IsRequest() {
				want[string(m.ID)]++
			} else if invalid, ok := errors.AsType[*jsonrpc.InvalidError](err); ok && invalid.ID != nil {
				unsure[string(invalid.ID)]++ // it depends on the kind of the message
			}
		}
		for id, n := range want {
			if answers[id] < n || answers[id] > n+unsure[id] {
				t.Fatalf("Serve(%.300q): %d answers to %s, want %d:\n%.2000q", input, answers[id], id, n, lines(out))
			}
		}
	})
}

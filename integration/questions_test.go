package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// TestQuestionsOfOneServer has two clients of 2026-07-28 call a tool that asks, again
// and again and both at the same time. The server runs as child processes, whose
// questions do not say which call they are about: each client must see its own
// questions only, and get the answer that has its own words. One child for each is
// enough.
func TestQuestionsOfOneServer(t *testing.T) {
	t.Parallel()
	rounds := scaletest.Of(20, 1000)
	p := startBridge(t, nil, fakeProgram(t), "-ledger", filepath.Join(t.TempDir(), "ledger"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// A third is started where the machine is so busy that one is not free again 100 ms
	// after its answer.
	const first = `"fakeserver: 1 tool"` // of the bridge's own first use, which has a child of its own
	if _, ok := eventually(func() (struct{}, bool) { return struct{}{}, strings.Contains(p.output.String(), first) }); !ok {
		t.Fatalf("the output lacks %s", first)
	}
	children := func() int { return strings.Count(p.output.String(), "child started") - 1 }
	for i := range rounds {
		var asked, answered [2]gjson.Result
		var errs [2]error
		both := func(f func(n int) (gjson.Result, error), to *[2]gjson.Result) {
			var all sync.WaitGroup
			for n := range to {
				all.Go(func() { to[n], errs[n] = f(n) })
			}
			all.Wait()
		}
		tag := func(n int) string { return fmt.Sprintf("client %d round %d", n, i) }
		both(func(n int) (gjson.Result, error) {
			return workModern(ctx, p.base, map[string]any{"tag": tag(n), "ask": true}, nil)
		}, &asked)
		for n, a := range asked {
			questions := a.Get("result.inputRequests").Map()
			if q := questions["r1"]; errs[n] != nil || len(questions) != 1 || q.Get("params.message").Str != tag(n) {
				t.Fatalf("%s was asked %s %v", tag(n), a.Raw, errs[n])
			}
		}
		both(func(n int) (gjson.Result, error) {
			return workModern(ctx, p.base, map[string]any{"tag": tag(n), "ask": true}, map[string]any{
				"requestState":   asked[n].Get("result.requestState").Str,
				"inputResponses": map[string]any{"r1": map[string]any{"action": "accept", "content": map[string]any{"said": "said by " + tag(n)}}},
			})
		}, &answered)
		for n, a := range answered {
			if got, want := a.Get("result.content.0.text").Str, tag(n)+" said by "+tag(n); errs[n] != nil || got != want {
				t.Fatalf("%s got %s %v, want %q", tag(n), a.Raw, errs[n], want)
			}
		}
		if n := children(); i == 0 && n != 2 || n > 4 {
			t.Fatalf("after round %d, %d children were started, want two", i, n)
		}
	}
	t.Logf("%d rounds, %d children", rounds, children())
}

// workModern calls the tool work of fakeserver as a client of 2026-07-28 that can be
// asked. more has further members of the params.
func workModern(ctx context.Context, base string, args, more map[string]any) (gjson.Result, error) {
	params := map[string]any{"name": "work", "arguments": args, "_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion":    modern,
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "c", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{"elicitation": map[string]any{}},
	}}
	for k, v := range more {
		params[k] = v
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
	if err != nil {
		return gjson.Result{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/mcp", strings.NewReader(string(body)))
	if err != nil {
		return gjson.Result{}, err
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": modern, "Mcp-Method": "tools/call", "Mcp-Name": "work"} {
		r.Header.Set(name, value)
	}
	res, err := rawHTTP.Do(r)
	if err != nil {
		return gjson.Result{}, err
	}
	defer res.Body.Close()
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		text, err := io.ReadAll(res.Body)
		return gjson.ParseBytes(text), err
	}
	for r, err := range rawEvents(res.Body) {
		if err != nil {
			return gjson.Result{}, err
		}
		if m := gjson.Parse(r.data); m.Get("id").Exists() {
			return m, nil
		}
	}
	return gjson.Result{}, io.ErrUnexpectedEOF
}

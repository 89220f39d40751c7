package sse

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// Events for a client that does not read count among the bytes in flight. An
// answer that has no room is an error that says so; each call gets exactly one, and
// other clients are served.
func TestUnreadCounts(t *testing.T) {
	const limit, size, calls = 2 << 20, 256 << 10, 20
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &wiretest.Server{}, gateway.Options{MaxBytes: limit}, Options{})
		deaf, conn, body := r.unread()
		other := r.begin("2025-06-18")
		deaf.post(fmt.Sprintf(initialize, "2025-06-18"), 202)
		for id := range calls {
			deaf.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"large","arguments":{"n":%d}}}`, id+1, size), 202)
			synctest.Wait()
		}
		if n := r.g.Totals().Bytes; n < limit/2 || n > limit {
			t.Errorf("%d bytes are under way with up to %d of answers that nobody reads, want some, and no more than %d", n, calls*size, limit)
		}
		other.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":7}}`, 202)
		other.expect(`{"jsonrpc":"2.0","id":1,"result":{"echo":7}}`)
		deaf.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, 202) // small things get through
		other.Leave()
		go func() { synctest.Wait(); _ = conn.Close() }() // when all is read
		got, _ := io.ReadAll(body)
		answers, refused := map[string]int{}, 0
		for line := range strings.SplitSeq(string(got), "\n") {
			for id := range calls {
				head := fmt.Sprintf(`data: {"jsonrpc":"2.0","id":%d,`, id+1)
				if strings.HasPrefix(line, head) {
					answers[head]++
					if strings.Contains(line, `"error"`) && strings.Contains(line, "max_bytes_in_flight") && strings.Contains(line, "upstream_too_large") {
						refused++
					}
				}
			}
		}
		if len(answers) != calls || refused < calls-limit/size || refused > calls-4 {
			t.Errorf("%d calls have answers, %d of them that there is no room", len(answers), refused)
		}
		for head, n := range answers {
			if n != 1 {
				t.Errorf("%d answers begin with %s", n, head)
			}
		}
		synctest.Wait()
		if n := r.g.Totals().Bytes; n != 0 {
			t.Errorf("%d bytes are under way when all is read", n)
		}
	})
}

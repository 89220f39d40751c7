package streamable

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// unread makes a request on a connection whose client does not read.
func (m *modernRig) unread(body string) net.Conn {
	conn := m.Dial()
	writePost(conn, body, modernHeaders(body))
	return conn
}

// A client that does not read: its events are bounded and coalesced, a subscription that would miss events ends,
// and its connection is given up in the end (R-178, D0.11).
func TestModernUnread(t *testing.T) {
	updated := func(uri string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q}}`, uri)
	}
	subscribe := modernBody("1", listen, `"notifications":{"resourceSubscriptions":["file:///"]}`)
	t.Run("coalesced", func(t *testing.T) {
		runModern(t, func(t *testing.T, m *modernRig) {
			conn := m.unread(subscribe)
			synctest.Wait()
			for i := range 5000 {
				m.m.Say(updated(fmt.Sprintf("file:///%d", i%300)))
			}
			go func() { wiretest.Advance(time.Second); m.g.Close(t.Context()) }()
			text, _ := io.ReadAll(conn)
			e := strings.Split(string(text), "\n\n")
			if n := len(e); n < 300 || n > 700 || !strings.Contains(e[0], "acknowledged") || !strings.Contains(e[n-2], `"resultType":"complete"`) {
				t.Errorf("%d events, from %q to %q", n, e[0], e[max(n-2, 0)])
			}
			for i := range 300 {
				if !bytes.Contains(text, []byte(fmt.Sprintf(`"uri":"file:///%d"`, i))) {
					t.Errorf("nothing of %d", i)
				}
			}
		})
	})
	t.Run("tasks", func(t *testing.T) {
		runModern(t, func(t *testing.T, m *modernRig) {
			var ids []string
			for i := range 250 {
				ids = append(ids, fmt.Sprintf(`"t%d"`, i))
			}
			conn := m.unread(modernBody("1", listen, `"notifications":{"taskIds":[`+strings.Join(ids, ",")+`],"resourceSubscriptions":["file:///"]}`))
			synctest.Wait()
			for i := range 5000 {
				m.m.Say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t%d","n":%d}}`, i%250, i))
			}
			for i := range 300 {
				m.m.Say(updated(fmt.Sprintf("file:///%d", i)))
			}
			go func() { wiretest.Advance(time.Second); m.g.Close(t.Context()) }()
			text, _ := io.ReadAll(conn)
			if n := bytes.Count(text, []byte("\n\n")); n > 900 {
				t.Errorf("%d events", n)
			}
			for i := range 250 {
				if !bytes.Contains(text, []byte(fmt.Sprintf(`"taskId":"t%d","n":%d`, i, 4750+i))) {
					t.Errorf("the last of task %d is missing", i)
				}
			}
		})
	})
	t.Run("too much", func(t *testing.T) {
		runModern(t, func(t *testing.T, m *modernRig) {
			conn := m.unread(subscribe)
			defer conn.Close()
			synctest.Wait()
			for i := range 100 {
				m.m.Say(updated(fmt.Sprintf("file:///%d", i) + strings.Repeat("x", 128<<10)))
			}
			synctest.Wait()
			if m.m.Listens() != 0 {
				t.Error("the subscription goes on though it misses what it waits for")
			}
			wiretest.Advance(time.Minute)
			synctest.Wait()
			m.d.mu.RLock()
			defer m.d.mu.RUnlock()
			if n := len(m.d.listening); n > 0 {
				t.Errorf("%d connections are left", n)
			}
		})
	})
	t.Run("for good", func(t *testing.T) {
		runModern(t, func(t *testing.T, m *modernRig) {
			conn := m.unread(subscribe)
			defer conn.Close()
			synctest.Wait()
			wiretest.Advance(time.Minute) // a beat, and the time to write it
			synctest.Wait()
			if got := m.m.Cancelled(); len(got) != 1 {
				t.Errorf("cancelled %q", got)
			}
		})
	})
	t.Run("at the end", func(t *testing.T) {
		runModern(t, func(t *testing.T, m *modernRig) {
			conn := m.unread(subscribe)
			defer conn.Close()
			synctest.Wait()
			began := time.Now()
			m.g.Close(t.Context())
			m.d.Close()
			if took := time.Since(began); took > breakAfter {
				t.Errorf("Close took %v", took)
			}
		})
	})
	t.Run("progress", func(t *testing.T) {
		runModern(t, func(t *testing.T, m *modernRig) {
			conn := m.unread(modernCallBody("1", "flood", `{"n":150,"bytes":50000}`)) // 7.5 MB
			synctest.Wait()
			go func() { _ = conn.SetReadDeadline(time.Now().Add(5 * time.Second)) }()
			text, _ := io.ReadAll(conn)
			if len(text) > 6<<20 || !strings.Contains(string(text), `"progress":150,`) || !strings.Contains(string(text), `"id":1,"result"`) {
				t.Errorf("%d bytes, ending in %q", len(text), text[max(0, len(text)-200):])
			}
			_ = conn.Close()
		})
	})
	t.Run("answer", func(t *testing.T) {
		runModern(t, func(t *testing.T, m *modernRig) {
			conn := m.unread(modernCallBody("1", "large", `{"n":262144}`))
			synctest.Wait()
			wiretest.Advance(40 * time.Second)
			if text, _ := io.ReadAll(conn); len(text) > 256<<10 {
				t.Errorf("%d bytes could be read still", len(text))
			}
			_ = conn.Close()
		})
	})
}

package gateway

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// pings counts what a server got of them.
func pings(f *fakeWire) (n int) {
	for _, line := range f.log() {
		if strings.Contains(line, `"method":"ping"`) {
			n++
		}
	}
	return n
}

// A silent connection is asked for a sign of life, one in use is not.
func TestPing(t *testing.T) {
	var release chan struct{}
	f := &fake{serve: func(f *fakeWire, m *jsonrpc.Message) bool {
		if m.Method != "tools/call" {
			return false
		}
		id := string(m.ID)
		go func() {
			<-release
			f.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`)
		}()
		return true
	}}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Ping: time.Minute}}, func(t *testing.T, g *gateway) {
		release = make(chan struct{}) // in the bubble
		s, _ := begin(t, g, "")
		time.Sleep(150 * time.Second)
		if n := pings(f.wire(1)); n != 2 {
			t.Errorf("%d pings in 150 s of silence, want 2", n)
		}
		done := make(chan string)
		go func() { done <- do(t, s, "1", "tools/call", `{"name":"x"}`) }()
		synctest.Wait()
		time.Sleep(10 * time.Minute)
		if n := pings(f.wire(1)); n != 2 {
			t.Errorf("%d pings with a call under way, want the 2 from before", n)
		}
		close(release)
		<-done
		time.Sleep(59 * time.Second)
		if n := pings(f.wire(1)); n > 3 {
			t.Errorf("%d pings, want no more than 3", n)
		}
	})
}

// A server that gives no sign of life has lost its connection; the session goes
// on with another one.
func TestPingDead(t *testing.T) {
	f := &fake{}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool { return m.Method == "ping" && f.n == 1 }
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Ping: time.Minute}}, func(t *testing.T, g *gateway) {
		s, st := begin(t, g, "")
		do(t, s, "1", "tools/list", `{}`)
		time.Sleep(150 * time.Second)
		if got := do(t, s, "2", "tools/list", `{}`); got != `{"jsonrpc":"2.0","id":2,"result":{}}` {
			t.Errorf("after the loss: %s", got)
		}
		if n := f.opened(); n != 2 {
			t.Errorf("%d connections were opened, want 2", n)
		}
		if got := st.take(); len(got) != 2 { // list_changed of what the server announces
			t.Errorf("the client was told %v", got)
		}
	})
}

// A call that the server has certainly not acted on is sent again, once, on a
// new connection; the client sees its answer only.
func TestUnsent(t *testing.T) {
	for _, test := range []struct {
		name  string
		times int // that the server forgets the session
		want  string
		opens int
	}{
		{"once", 1, `{"jsonrpc":"2.0","id":7,"result":{}}`, 2},
		{"twice", 2, `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"server fake: it has forgotten the session","data":{"bridge":"upstream_unavailable"}}}`, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{}
			f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
				if m.Method != "tools/call" || f.n > test.times {
					return false
				}
				forgotten := &bridge.Error{Server: "fake", Kind: bridge.ErrUnsent, Public: "it has forgotten the session"}
				f.Abort(number(m.ID), forgotten)
				f.rest.Gone(forgotten)
				return true
			}
			run(t, ServerOptions{Adapter: f}, func(t *testing.T, g *gateway) {
				s, st := begin(t, g, "")
				do(t, s, "1", "logging/setLevel", `{"level":"debug"}`)
				do(t, s, "2", "resources/subscribe", `{"uri":"a:b"}`)
				time.Sleep(time.Hour)
				began := time.Now()
				if got := do(t, s, "7", "tools/call", `{"name":"x"}`); got != test.want {
					t.Errorf("got %s", got)
				}
				if test.times == 1 && time.Since(began) > 0 {
					t.Errorf("waited %v for a server that works", time.Since(began))
				}
				if n := f.opened(); n < test.opens {
					t.Errorf("%d connections were opened, want %d", n, test.opens)
				}
				restored := strings.Join(f.wire(2).received(), "\n")
				if !strings.Contains(restored, `"level":"debug"`) || !strings.Contains(restored, `"uri":"a:b"`) {
					t.Errorf("the new connection was told\n%s", restored)
				}
				if got := strings.Join(st.take(), ""); test.times == 1 && (strings.Count(got, "list_changed") != 2 || strings.Count(got, "resources/updated") != 1) {
					t.Errorf("the client was told %s", got)
				}
			})
		})
	}
}

func number(id []byte) (n int64) {
	for _, c := range id {
		n = 10*n + int64(c-'0')
	}
	return n
}

package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// crashing is a server that answers a call after 50 ms, and that ends when a
// tool of the name crash is called.
func crashing() *fake {
	f := &fake{}
	f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
		switch {
		case m.Method != "tools/call":
			return false
		case m.Name() == "crash":
			f.die()
			return true
		}
		m = m.Clone()
		f.wg.Go(func() {
			select {
			case <-time.After(50 * time.Millisecond):
				f.answer(m, `{"content":[]}`)
			case <-f.done:
			}
		})
		return true
	}
	return f
}

// One client that makes the process crash again and again that it shares with
// others takes nothing from them but what is under way at each crash: neither
// where clients without sessions share it, nor where everybody does.
func TestLaneCrashesOfAnother(t *testing.T) {
	for _, tc := range []struct {
		name   string
		share  Share
		modern bool
		every  time.Duration // between crashes
		length time.Duration
	}{
		{"without sessions, every 10 s", ShareSession, true, 10 * time.Second, 10 * time.Minute},
		{"everybody, without sessions, every 10 s", ShareAll, true, 10 * time.Second, 10 * time.Minute},
		{"everybody, every 10 s", ShareAll, false, 10 * time.Second, 10 * time.Minute},
		{"everybody, 20 times in 10 minutes", ShareAll, false, 30 * time.Second, 10 * time.Minute},
		{"everybody, every 5 s", ShareAll, false, 5 * time.Second, 5 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, ServerOptions{Adapter: crashing(), ServerSettings: ServerSettings{Share: tc.share}}, func(t *testing.T, g *gateway) {
				caller := func() func(tool string) string {
					if tc.modern {
						return func(tool string) string { return visitor{}.call(t, g, "tools/call", `"name":"`+tool+`"`) }
					}
					s, _ := begin(t, g, "")
					return func(tool string) string { return do(t, s, "1", "tools/call", `{"name":"`+tool+`"}`) }
				}
				bad, good := caller(), caller()
				crashes := 0
				ctx, stop := context.WithTimeout(t.Context(), tc.length)
				defer stop()
				var wg sync.WaitGroup
				wg.Go(func() {
					for ctx.Err() == nil {
						if strings.Contains(bad("crash"), "upstream_lost") {
							crashes++
						}
						time.Sleep(tc.every)
					}
				})
				var ok, lost, refused int
				for i := 0; ctx.Err() == nil; i++ {
					switch got := good(fmt.Sprint("x", i)); {
					case strings.Contains(got, `"result"`):
						ok++
					case strings.Contains(got, "upstream_lost"):
						lost++
					default:
						if refused++; refused == 1 {
							t.Log(got)
						}
					}
					time.Sleep(time.Duration(scaletest.Of(700, 10)) * time.Millisecond)
				}
				wg.Wait()
				if refused > 0 || lost > crashes || crashes < min(20, int(tc.length/tc.every)-2) || ok < 100 {
					t.Errorf("%d crashes; of a bystander's calls %d had an answer, %d were lost and %d refused", crashes, ok, lost, refused)
				}
				if st := state(g); st.Trips != 0 {
					t.Errorf("left alone %d times", st.Trips)
				}
			})
		})
	}
}

// A process that has answered somebody is started again at once, one that has
// not after a pause that grows.
func TestLaneWorked(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{Breaker: breaker.Options{Off: true}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		took := func() time.Duration {
			synctest.Wait()
			f.wire(f.open()).die()
			synctest.Wait()
			began := time.Now()
			s.Notify(bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`), nil) // which nobody answers
			for n := f.open(); f.open() == n && time.Since(began) < time.Minute; {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
			}
			return time.Since(began).Round(time.Second)
		}
		for i, want := range []time.Duration{1, 2, 4} {
			if got := took(); got != want*time.Second {
				t.Errorf("loss %d without an answer: opened again after %v, want %d s", i+1, got, want)
			}
		}
		for range 3 {
			bridgetest.Contains(t, do(t, s, "1", "x", `{}`), `"result"`)
			if got := took(); got != 0 {
				t.Errorf("after an answer: opened again after %v", got)
			}
		}
		if got := took(); got != time.Second {
			t.Errorf("without an answer again: opened again after %v, want 1s", got)
		}
	})
}

// Starts are limited within a minute, and when half of them are used up the rest
// is spread over it: a process that dies all the time is there now and then, and
// not away for long.
func TestLaneStartsSpread(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{StartsPerMinute: 10, Breaker: breaker.Options{Off: true}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		var starts []time.Time
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(time.Duration(scaletest.Of(50, 10)) * time.Millisecond) {
			if n := f.open(); strings.Contains(do(t, s, "1", "x", `{}`), `"result"`) {
				if f.open() > n {
					starts = append(starts, time.Now())
				}
				f.wire(f.open()).die()
				synctest.Wait()
			}
		}
		if len(starts) < 30 {
			t.Errorf("%d starts in five minutes", len(starts))
		}
		for i := range starts {
			if i+10 < len(starts) && starts[i+10].Sub(starts[i]) < time.Minute {
				t.Errorf("starts %d to %d within %v", i, i+10, starts[i+10].Sub(starts[i]))
			}
			if i > 0 && starts[i].Sub(starts[i-1]) > 12*time.Second+20*time.Millisecond {
				t.Errorf("%v between two starts", starts[i].Sub(starts[i-1]))
			}
		}
	})
}

// The longest pause is a setting.
func TestLaneMaxPause(t *testing.T) {
	f := &fake{}
	f.before = func(_ context.Context, n int) error {
		if n > 1 {
			return failure(bridge.ErrUnavailable)
		}
		return nil
	}
	run(t, ServerOptions{Adapter: f, ServerSettings: ServerSettings{RestartMaxPause: 3 * time.Second, Breaker: breaker.Options{Off: true}}}, func(t *testing.T, g *gateway) {
		s, _ := begin(t, g, "")
		f.wire(1).die()
		synctest.Wait()
		for range 8 {
			do(t, s, "1", "x", `{}`)
		}
		if got, want := fmt.Sprint(gaps(f)), "[1 2 3 3 3 3 3 3]"; got != want {
			t.Errorf("pauses %v, want %v", got, want)
		}
	})
}

// Whenever a call comes about the end of a connection, it has one answer: it
// fails if the server had it, and goes over the next connection if not.
func TestLaneEndWindow(t *testing.T) {
	for _, share := range []Share{ShareSession, SharePrincipal, ShareAll} {
		failed, goOn := make(chan struct{}), make(chan struct{})
		f := &fake{}
		f.serve = func(f *fakeWire, m *jsonrpc.Message) bool {
			if f.n > 1 || m.Method != "tools/call" {
				return false
			}
			if m.Name() == "crash" {
				err := &bridge.Error{Server: "fake", Kind: bridge.ErrLost, Public: "it died"}
				f.Fail(err)
				close(failed)
				<-goOn
				f.rest.Gone(err)
			}
			return true
		}
		synctest.Test(t, func(t *testing.T) {
			failed, goOn = make(chan struct{}), make(chan struct{})
			g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: f, ServerSettings: ServerSettings{Share: share}}}, Log: slog.New(slog.DiscardHandler)})
			defer g.Close(context.Background())
			s, _ := begin(t, g, "")
			call := func(id, name string) *pendingCall {
				return start(t, s, `{"jsonrpc":"2.0","id":"`+id+`","method":"tools/call","params":{"name":"`+name+`"}}`)
			}
			before := call("before", "x")
			synctest.Wait()
			crash := call("crash", "crash")
			<-failed // the connection knows, and the lane does not
			between := call("between", "x")
			<-between.done
			close(goOn)
			after := call("after", "x")
			for _, p := range []*pendingCall{before, crash, between, after} {
				<-p.done
			}
			bridgetest.Contains(t, before.answer, "upstream_lost")
			bridgetest.Contains(t, crash.answer, "upstream_lost")
			bridgetest.Contains(t, between.answer, `"result"`)
			bridgetest.Contains(t, after.answer, `"result"`)
			if got := f.wire(2).received(); f.open() != 2 || len(got) != 2 {
				t.Errorf("%s: %d connections; the second got %q", share, f.open(), got)
			}
		})
	}
}

package stdio

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

const statelessMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"tok"}`

// keyed makes a request of the stateless era; params are members, or empty.
func keyed(id, method, params string) string {
	if params != "" {
		params += ","
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s%s}}`, id, method, params, statelessMeta)
}

func keyedTool(id, name, args string) string {
	return keyed(id, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, name, args))
}

func cancelled(id string, more ...string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{%s}}`, strings.Join(append([]string{`"requestId":` + id}, more...), ","))
}

// statelessClient is a client whose server speaks both eras.
type statelessClient struct {
	*desk
	m *wiretest.Modern
}

// asStateless runs f in a bubble.
func asStateless(t *testing.T, o DownstreamOptions, f func(t *testing.T, s *statelessClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		both := wiretest.Both{Legacy: &wiretest.Server{}, Modern: &wiretest.Modern{}}
		d := sitBy(t, gateway.ServerOptions{Adapter: both}, gateway.Options{}, o)
		d.s = both.Legacy
		f(t, &statelessClient{d, both.Modern})
	})
}

const (
	complete = `{"resultType":"complete","content":[]}`
	subKey   = `_meta.io\.modelcontextprotocol/subscriptionId`
)

func result(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete"…`
}

// Each message says of itself of which era it is; a client may speak both, one before, after and beside the other (C3,
// Nothing is settled by the first.
func TestStatelessBesideSession(t *testing.T) {
	asStateless(t, DownstreamOptions{}, func(t *testing.T, s *statelessClient) {
		s.say(keyed("1", "server/discover", ""))
		s.expect(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25",…`)
		s.say(keyed(`"a"`, "tools/list", ""))
		s.expect(result(`"a"`))
		s.say(tool("1", "echo", "1"), `{"jsonrpc":"2.0","method":"x"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `[{"jsonrpc":"2.0","id":2,"method":"ping"}]`)
		s.expect(fault("1", -32600), fault("2", -32600)) // keyless, and no session yet
		s.say(keyed("2", "initialize", ""), keyed("3", "ping", ""))
		s.expect(fault("2", -32601), fault("3", -32601))
		s.handshake("2025-11-25")
		s.say(keyedTool("4", "wait", "{}"), tool("4", "wait", "{}"), tool("5", "echo", "2"))
		s.expect(`{"jsonrpc":"2.0","id":5,"result":{"echo":2}}`)
		s.s.Answer(`{"era":"old"}`)
		s.expect(`{"jsonrpc":"2.0","id":4,"result":{"era":"old"}}`)
		s.m.Answer(`{"resultType":"complete","era":"young"}`)
		s.expect(`{"jsonrpc":"2.0","id":4,"result":{"resultType":"complete","era":"young"}}`)
		s.say(strings.Replace(keyedTool("6", "echo", "3"), "protocol/", `protocol\/`, 1)) // as PHP writes it
		s.expect(result("6"))
		s.say("["+tool("7", "echo", "1")+","+keyed("8", "tools/list", "")+"]", keyedTool("9", "echo", "12345678901234567890"))
		s.expect(fault("7", -32600), fault("8", -32600), `{"jsonrpc":"2.0","id":9,"result":{"resultType":"complete","content":[],"structuredContent":12345678901234567890…`)
		s.say(strings.Replace(keyed("10", "x", ""), `"id":10,`, "", 1), `{"jsonrpc":"2.0","id":10,"result":{},"params":{`+statelessMeta+`}}`)
		s.expect() // notifications and answers of the era are nothing
		if err := s.leave(); err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
}

// A cancellation takes back the request of that id that has no session, and otherwise the session's; nothing more is sent
//
func TestStatelessCancelled(t *testing.T) {
	asStateless(t, DownstreamOptions{}, func(t *testing.T, s *statelessClient) {
		s.handshake("2025-11-25")
		s.say(keyedTool("1", "wait", "{}"), tool("1", "wait", "{}"), keyedTool(`"1"`, "wait", "{}"))
		s.say(cancelled("1"))
		if got := s.m.Cancelled(); !slices.Equal(got, []string{"tools/call wait: cancelled by the client"}) {
			t.Errorf("cancelled %q", got)
		}
		s.say(cancelled("1", statelessMeta)) // the stateless call has ended; a session's call of the same id goes on
		s.s.Answer(`{"still":"there"}`)
		s.expect(`{"jsonrpc":"2.0","id":1,"result":{"still":"there"}}`)
		s.say(cancelled(`"1"`, statelessMeta))
		if got := s.m.Cancelled(); len(got) != 1 {
			t.Errorf("cancelled %q", got)
		}
		s.expect()
		s.say(tool("2", "wait", "{}"), cancelled("2"))
		s.expect()
		// Two of the same id: the cancelled one is unknown.
		s.say(keyedTool("3", "wait", "{}"), keyedTool("3", "wait", "{}"), cancelled("3"))
		if got := s.m.Cancelled(); len(got) != 0 {
			t.Errorf("cancelled %q", got)
		}
		for range 3 { // the first two were taken back
			s.m.Answer(complete)
		}
		for s.m.Answer(complete) {
		}
		s.expect(result("3"), result("3"))
		s.say(keyedTool("4", "linger", "{}"))
		s.hear()
		s.say(cancelled("4"), keyedTool("4", "echo", "1")) // the id is free again at once
		s.expect(result("4"))
	})
}

// A server with sessions gets a cancellation as from a client of its own era.
func TestStatelessOfLegacyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := sit(t, &wiretest.Server{}, gateway.ServerOptions{}, gateway.Options{}, DownstreamOptions{})
		d.say(keyedTool("1", "steps", `{"n":1}`))
		d.expect(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":1}}`, result("1"))
		d.say(keyedTool("2", "wait", "{}"))
		d.s.Got()
		d.say(cancelled("2", statelessMeta, `"reason":"the user has left"`))
		if got := d.s.Got(); len(got) != 1 || gjson.Get(got[0], "method").Str != "notifications/cancelled" || gjson.Get(got[0], "params.reason").Str != "the user has left" {
			t.Errorf("the server got %q", got)
		}
		d.expect()
		if err := d.leave(); err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
}

// Subscriptions share the output, each message with the id of its own; the client ends one by a cancellation, and hears
// nothing more of it (R-142, R-143, R-146, R-092; B10).
func TestStatelessListen(t *testing.T) {
	asStateless(t, DownstreamOptions{}, func(t *testing.T, s *statelessClient) {
		const filter = `"notifications":{"toolsListChanged":true}`
		s.say(keyed("1", "subscriptions/listen", filter), keyed(`"1"`, "subscriptions/listen", filter))
		acks := s.hear()
		s.m.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		changes := s.hear()
		for what, lines := range map[string][]string{"notifications/subscriptions/acknowledged": acks, "notifications/tools/list_changed": changes} {
			var ids []string
			for _, l := range lines {
				ids = append(ids, gjson.Get(l, "params."+subKey).Raw)
				if gjson.Get(l, "method").Str != what {
					t.Errorf("%s, want %s", l, what)
				}
			}
			slices.Sort(ids)
			if !slices.Equal(ids, []string{`"1"`, "1"}) {
				t.Errorf("%s of %q", what, ids)
			}
		}
		s.say(cancelled("1"))
		time.Sleep(200 * time.Millisecond) // earlier changes are forgotten then
		s.m.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if got := s.hear(); len(got) != 1 || gjson.Get(got[0], "params."+subKey).Raw != `"1"` {
			t.Errorf("after one is cancelled: %q", got)
		}
		began := time.Now()
		if err := s.leave(); err != nil {
			t.Errorf("Serve = %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("a subscription holds up the end for %v", took)
		}
	})
}

// When the bridge ends a subscription, its result comes first, then a cancellation (R-145, B10).
func TestStatelessTeardown(t *testing.T) {
	for name, stop := range map[string]func(s *statelessClient){
		"drain":  func(s *statelessClient) { _ = s.g.Drain(s.t.Context()) },
		"signal": func(s *statelessClient) { s.stop(errStop) },
		"EOF":    func(s *statelessClient) { _ = s.in.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			asStateless(t, DownstreamOptions{}, func(t *testing.T, s *statelessClient) {
				s.say(keyed(`"s"`, "subscriptions/listen", `"notifications":{}`))
				s.hear()
				stop(s)
				s.expect(`{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}`,
					`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s",…`)
				if name == "drain" {
					s.say(keyed("2", "subscriptions/listen", `"notifications":{}`))
					s.expect(fault("2", -32603))
					s.say(keyedTool("3", "echo", "1"))
					s.expect(fault("3", -32603))
				}
			})
		})
	}
}

// The end of the input: calls in flight may take two seconds more, and each has an answer.
func TestStatelessEOF(t *testing.T) {
	asStateless(t, DownstreamOptions{}, func(t *testing.T, s *statelessClient) {
		s.say(keyedTool("1", "late", `{"after":"1s"}`), keyedTool("2", "late", `{"after":"5s"}`), keyedTool("3", "echo", "1"))
		s.hear()
		began := time.Now()
		if err := s.leave(); err != nil {
			t.Errorf("Serve = %v", err)
		}
		if took := time.Since(began); took != lingerEOF {
			t.Errorf("Serve returned after %v", took)
		}
		s.expect(result("1"), fault("2", -32603))
		if got := s.m.Cancelled(); len(got) != 1 {
			t.Errorf("cancelled %q", got)
		}
	})
	asStateless(t, DownstreamOptions{}, func(t *testing.T, s *statelessClient) { // of a script, in one piece
		s.write(keyed("1", "server/discover", "") + "\n" + keyedTool("2", "late", `{"after":"1s"}`))
		if err := s.leave(); err != nil {
			t.Errorf("Serve = %v", err)
		}
		s.expect(`{"jsonrpc":"2.0","id":1,"result":…`, result("2"))
	})
	asStateless(t, DownstreamOptions{}, func(t *testing.T, s *statelessClient) { // a signal does not wait
		s.say(keyedTool("1", "wait", "{}"))
		s.stop(errStop)
		<-s.served
		if !errors.Is(s.err, errStop) {
			t.Errorf("Serve = %v", s.err)
		}
		s.expect(fault("1", -32603))
	})
}

// Limits: requests in flight.
func TestStatelessLimit(t *testing.T) {
	asStateless(t, DownstreamOptions{}, func(t *testing.T, s *statelessClient) {
		var lines []string
		for i := range maxStateless {
			lines = append(lines, keyedTool(fmt.Sprint(i), "wait", "{}"))
		}
		s.say(lines...)
		s.expect()
		s.say(keyedTool(`"x"`, "echo", "1"))
		s.expect(`{"jsonrpc":"2.0","id":"x","error":{"code":-32603,…`)
		s.say(cancelled("0"), keyedTool(`"y"`, "echo", "1"))
		s.expect(result(`"y"`))
		for s.m.Answer(complete) {
		}
		if got := s.hear(); len(got) != maxStateless-1 {
			t.Errorf("%d answers", len(got))
		}
	})
}

// A client that does not read: subscriptions get the last event of each kind, each its own, or end (D0.11).
func TestStatelessUnread(t *testing.T) {
	for name, uris := range map[string]int{"coalesced": 20, "too many": 2000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &wiretest.Modern{}
				theirIn, in := io.Pipe()
				out, theirOut := io.Pipe()
				served := serving(t, t.Context(), m, theirIn, theirOut, DownstreamOptions{MaxMessage: 64 << 10})
				_, _ = fmt.Fprintln(in, keyed("1", "subscriptions/listen", `"notifications":{"resourceSubscriptions":["file:///"]}`))
				_, _ = fmt.Fprintln(in, keyed("2", "subscriptions/listen", `"notifications":{"resourceSubscriptions":["file:///"]}`))
				synctest.Wait()
				for i := range 4000 {
					m.Say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///%d"}}`, i%uris))
				}
				synctest.Wait()
				if n := m.Listens(); (n == 2) != (uris == 20) {
					t.Errorf("%d subscriptions are left", n)
				}
				go func() {
					wiretest.Advance(time.Second)
					_ = in.Close()
					if err := <-served; err != nil {
						t.Errorf("Serve = %v", err)
					}
					_ = theirOut.Close()
				}()
				text, _ := io.ReadAll(out)
				seen := map[string]bool{}
				for line := range strings.Lines(string(text)) {
					seen[gjson.Get(line, "params."+subKey).Raw+gjson.Get(line, "params.uri").Str] = true
					if id := gjson.Get(line, "id").Raw; id != "" && gjson.Get(line, "error").Exists() == (uris == 20) {
						t.Errorf("the end: %s", line)
					}
				}
				for i := range 20 {
					for _, id := range []string{"1", "2"} {
						if uri := fmt.Sprintf("%sfile:///%d", id, i); uris == 20 && !seen[uri] {
							t.Errorf("nothing of %s", uri)
						}
					}
				}
			})
		})
	}
}

// Where legacy revisions only are offered, a client of the stateless era finds what it would find at a legacy server: no
// server/discover, and nothing before initialize.
func TestStatelessNotOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := sitBy(t, gateway.ServerOptions{Adapter: &wiretest.Server{}, ServerSettings: gateway.ServerSettings{Offer: gateway.OfferLegacy}}, gateway.Options{}, DownstreamOptions{})
		d.say(keyed("1", "server/discover", ""), keyed("2", "tools/list", ""), cancelled("2", statelessMeta), keyed("3", "ping", ""))
		d.expect(fault("1", -32601), fault("2", -32600), `{"jsonrpc":"2.0","id":3,"result":{}}`)
		d.handshake("2025-11-25")
		d.say(keyedTool("4", "echo", "5"))
		d.expect(`{"jsonrpc":"2.0","id":4,"result":{"echo":5}}`)
		d.say("[" + keyed("6", "tools/list", "") + "]")
		d.expect(`{"jsonrpc":"2.0","id":6,"error":{"code":-32600,"message":"batches do not exist in revision 2025-11-25…`)
	})
}

package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/scaletest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// What a client may write that is no message, or is a strange one (A1, A5).
func TestDownstreamLines(t *testing.T) {
	const ping, pong = `{"jsonrpc":"2.0","id":7,"method":"ping"}`, `{"jsonrpc":"2.0","id":7,"result":{}}`
	for _, tc := range []struct {
		name, line string
		want       []string
	}{
		{"blank", "", nil},
		{"blank with CR", " \r", nil},
		{"not JSON (R-014)", "hello", []string{fault("", -32700)}},
		{"cut off", ping[:20], []string{fault("", -32700)}},
		{"a control character", "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"pi\tng\"}", []string{fault("", -32700)}},
		{"a number", "5", []string{fault("", -32600)}},
		{"an object", "{}", []string{fault("", -32600)}},
		{"no version", `{"id":"a","method":"ping"}`, []string{fault(`"a"`, -32600)}},
		{"method is a number", `{"jsonrpc":"2.0","id":7,"method":5}`, []string{fault("7", -32600)}},
		{"escaped names", `{"jsonrpc":"2.0","\u0069d":7,"m\u0065thod":5}`, []string{fault("7", -32600)}},
		{"id null (R-002)", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, []string{fault("", -32600)}},
		{"id is an object", `{"jsonrpc":"2.0","id":{"id":1},"method":"ping"}`, []string{fault("", -32600)}},
		{"id twice", `{"jsonrpc":"2.0","id":7,"id":7,"method":"ping"}`, []string{fault("7", -32600)}},
		{"request with a result", `{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}`, []string{fault("7", -32600)}},
		{"invalid notification (R-005)", `{"jsonrpc":"2.0","method":"x","params":[]}`, nil},
		{"unknown notification", `{"jsonrpc":"2.0","method":"x"}`, nil},
		{"late answer", `{"jsonrpc":"2.0","id":7,"result":{}}`, nil},
		{"invalid answer", `{"jsonrpc":"2.0","id":7,"result":{},"error":{}}`, nil},
		{"answer without id", `{"jsonrpc":"2.0","result":{}}`, nil},
		{"error without id", `{"jsonrpc":"2.0","error":{"code":-32700,"message":"?"}}`, nil},
		{"neither", `{"jsonrpc":"2.0","id":7}`, []string{fault("7", -32600)}},
		{"second initialize (A2)", fmt.Sprintf(initialize, "2025-06-18"), []string{fault("0", -32600)}},
		{"stateless era, not as it has to be (C3, R-067)", `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, []string{fault("7", -32602)}},
		{"stateless era, later revision (R-069)", `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01"}}}`, []string{`{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2099-01-01"}}}`}},
		{"its notification", `{"jsonrpc":"2.0","method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, nil},
		{"unknown method goes to the server", `{"jsonrpc":"2.0","id":7,"method":"x/y","params":null}`, []string{`{"jsonrpc":"2.0","id":7,"result":{"method":"x/y"}}`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seated(t, "2025-06-18", func(t *testing.T, d *desk) {
				d.say(tc.line)
				d.expect(tc.want...)
				d.say(ping)
				d.expect(pong) // the session lives on
				if err := d.leave(); err != nil {
					t.Errorf("Serve = %v", err)
				}
			})
		})
	}
}

// A line above the limit is discarded up to its line break. The request in it
// fails, and so does the question that it was to answer.
func TestDownstreamTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := sit(t, &wiretest.Server{}, gateway.ServerOptions{}, gateway.Options{}, DownstreamOptions{MaxMessage: 1000})
		d.handshake("2025-03-26")
		pad := `{"id":9,"t":"` + strings.Repeat(`\"}{`, 20_000) + `","result":[[{"method":"}"}]]}`
		tooLarge := func(id string) string {
			return `{"jsonrpc":"2.0",` + id + `"error":{"code":-32600,"message":"the message is larger than the limit of 1000 bytes"}}`
		}
		d.say(`{"jsonrpc":"2.0","id":"a","method":"x","params":` + pad + `}`)
		d.expect(tooLarge(`"id":"a",`))
		d.say(`{"params":`+pad+`,"method":"x", "id" : -5 ,"jsonrpc":"2.0"}`+"\r", `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
		d.expect(tooLarge(`"id":-5,`), `{"jsonrpc":"2.0","id":7,"result":{}}`)
		d.say(`{"jsonrpc":"2.0","method":"x","params":`+pad+`}`, `{"jsonrpc":"2.0","id":1,"result":`+pad+`}`)
		d.expect() // a notification, and an answer that nobody waits for
		d.say(`{"jsonrpc":"2.0","id":null,"method":"x","params":`+pad+`}`, pad[8:], `{"jsonrpc":"2.0","id":"\q","method":"x","params":`+pad+`}`)
		d.expect(tooLarge(""), tooLarge(""), tooLarge(""))
		d.say(`[{"jsonrpc":"2.0","id":"b","method":"x","params":` + pad + `},{"jsonrpc":"2.0","method":"y"},[{"id":3}],{"id":"c","method":"z"}]`)
		d.expect(tooLarge(`"id":"b",`), tooLarge(`"id":"c",`))
		d.say(tool("5", "ask", "{}"))
		d.expect(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage",…`)
		d.say(`{"jsonrpc":"2.0","result":` + pad + `,"id":1}`)
		d.expect(`{"jsonrpc":"2.0","id":5,"result":{"error":{"code":-32603,"message":"the client's answer could not be used: the message is larger than the limit of 1000 bytes"}}}`)
		d.say(tool("6", "ask", "{}"))
		d.expect(`{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage",…`)
		d.say(`{"jsonrpc":"2.0","id":2,"result":{},"error":5}`)
		d.expect(`{"jsonrpc":"2.0","id":6,"result":{"error":{"code":-32603,…`)
	})
}

// What is read counts among all that is in flight in the bridge.
func TestDownstreamOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = 100 << 10
		d := sit(t, &wiretest.Server{}, gateway.ServerOptions{}, gateway.Options{MaxBytes: all}, DownstreamOptions{})
		d.handshake("2025-06-18")
		if !d.g.Room("").Reserve(all - 1000) {
			t.Fatal("no room")
		}
		arg := `"` + strings.Repeat("x", 2000) + `"`
		d.say(tool("1", "echo", arg))
		d.expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the bridge is overloaded: too many bytes are under way; try again later","data":{"bridge":"overloaded"}}}`)
		d.g.Room("").Return(all - 1000)
		d.say(tool("1", "echo", arg))
		d.expect(`{"jsonrpc":"2.0","id":1,"result":{"echo":` + arg + `}}`)
		d.write(tool("2", "echo", arg)[:1500]) // whose end does not come; its room is checked at the end of the test
		d.stop(errStop)
		<-d.served
	})
}

// Batches exist up to 2025-03-26 (A9, R-021).
func TestDownstreamBatch(t *testing.T) {
	const batch = `[{"jsonrpc":"2.0","id":"b","method":"ping"},{"jsonrpc":"2.0","id":2},{"jsonrpc":"2.0","method":"x"},5,{"jsonrpc":"2.0","id":"b","method":"ping"},{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}}]`
	for revision, known := range map[string]bool{"2024-11-05": true, "2025-03-26": true, "2025-06-18": false, "2025-11-25": false} {
		seated(t, revision, func(t *testing.T, d *desk) {
			many := "[" + strings.Repeat(`{"jsonrpc":"2.0","method":"x"},`, gateway.MaxBatch) + `{"jsonrpc":"2.0","method":"x"}]`
			d.say("[]", many, "[{]")
			d.expect(fault("", -32600), fault("", -32600), fault("", -32700))
			d.say(batch)
			got := d.hear()
			if known && len(got) != 5 || !known && len(got) != 3 {
				t.Errorf("%s: %d answers: %q", revision, len(got), got)
			}
			pong := 0
			for _, g := range got {
				if g == `{"jsonrpc":"2.0","id":"b","result":{}}` {
					pong++
				} else if !strings.Contains(g, `"error":{"code":-32600`) {
					t.Errorf("%s: %s", revision, g)
				}
			}
			if known != (pong == 1) {
				t.Errorf("%s: ping was answered %d times", revision, pong)
			}
		})
	}
}

// The client that has started the bridge gets the last words of the server's process. A client
// with a principal does not, as over HTTP.
func TestDownstreamTold(t *testing.T) {
	for _, principal := range []string{"", "somebody"} {
		for _, request := range []string{fmt.Sprintf(initialize, "2025-06-18"), keyed("1", "tools/list", "")} {
			synctest.Test(t, func(t *testing.T) {
				d := sit(t, &wiretest.Server{Before: func(context.Context) error {
					return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it cannot start", Stderr: "no key", Err: errors.New("KEY is set here")}
				}}, gateway.ServerOptions{}, gateway.Options{}, DownstreamOptions{Principal: principal})
				d.say(request)
				said := d.hear()
				want := `"message":"server fake: it cannot start"`
				if principal == "" {
					want = `"message":"server fake: it cannot start\nits last lines on stderr:\n  no key\nKEY is set here"`
				}
				if len(said) != 1 || !strings.Contains(said[0], want) || !strings.Contains(said[0], `"bridge":"upstream_unavailable"`) {
					t.Errorf("%q: %q gets %q, want %s", principal, request, said, want)
				}
			})
		}
	}
}

// While the handshake lasts, what a script sends ahead waits, and pings do not.
func TestDownstreamHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		d := sit(t, &wiretest.Server{Before: func(context.Context) error {
			time.Sleep(time.Second)
			if tries++; tries == 1 {
				return &bridge.Error{Server: "fake", Kind: bridge.ErrUnavailable, Public: "it cannot start"}
			}
			return nil
		}}, gateway.ServerOptions{}, gateway.Options{}, DownstreamOptions{})
		first := fmt.Sprintf(initialize, "2025-06-18")
		d.say(first, initialized, tool("1", "echo", "1"))
		d.expect()
		wiretest.Advance(time.Second)
		d.expect(fault("0", -32603), fault("1", -32600)) // and it may be tried again
		d.say(first, initialized, tool("1", "wait", "1"), `{"jsonrpc":"2.0","id":"p","method":"ping"}`, tool("2", "echo", "2"),
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
		d.expect(`{"jsonrpc":"2.0","id":"p","result":{}}`)
		for i := range 2 * maxHeld {
			d.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"n%d","method":"x"}`, i))
		}
		refused := len(d.hear())
		if refused != maxHeld+4 {
			t.Errorf("%d requests were refused, want those above %d", refused, maxHeld)
		}
		wiretest.Advance(time.Second)
		got := d.hear()
		if len(got) != 1+1+maxHeld-4 || !strings.Contains(got[0], `"id":0,"result"`) {
			t.Errorf("%d answers, %.300q", len(got), got)
		}
	})
}

// The ways to end. Each call in flight gets one answer.
func TestDownstreamEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(d *desk)
		want error
		took time.Duration
	}{
		{"input ends", func(d *desk) { _ = d.in.Close() }, nil, lingerEOF},
		{"input ends, then the context", func(d *desk) {
			_ = d.in.Close()
			wiretest.Advance(time.Second)
			d.stop(errStop)
		}, nil, time.Second},
		{"the context ends", func(d *desk) { d.stop(errStop) }, errStop, 0},
		{"the bridge closes", func(d *desk) { d.g.Close(context.Background()) }, bridge.ErrShutdown, 0},
		{"the server is gone", func(d *desk) { d.say(tool("4", "quit", "{}")) }, bridge.ErrLost, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := sit(t, &wiretest.Server{}, gateway.ServerOptions{EndWithServer: true}, gateway.Options{}, DownstreamOptions{})
				d.handshake("2025-06-18")
				for id := range 3 {
					d.say(tool(fmt.Sprint(id), "wait", "{}"))
				}
				began := time.Now()
				tc.end(d)
				<-d.served
				if !errors.Is(d.err, tc.want) || tc.want == nil && d.err != nil {
					t.Errorf("Serve = %v, want %v", d.err, tc.want)
				}
				if took := time.Since(began); took != tc.took {
					t.Errorf("it took %v, want %v", took, tc.took)
				}
				answers := map[string]int{}
				for _, line := range d.hear() {
					for id := range 3 {
						if strings.HasPrefix(line, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":`, id)) {
							answers[fmt.Sprint(id)]++
						}
					}
				}
				if len(answers) != 3 || answers["0"] != 1 || answers["1"] != 1 || answers["2"] != 1 {
					t.Errorf("error answers by id: %v, want one for each of 0, 1, 2", answers)
				}
			})
		})
	}
}

// The end during the handshake: it is answered, and nothing is left of it.
func TestDownstreamEndsInHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := sit(t, &wiretest.Server{Before: func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}, gateway.ServerOptions{}, gateway.Options{}, DownstreamOptions{})
		d.say(fmt.Sprintf(initialize, "2025-06-18"), tool("1", "echo", "1"))
		d.stop(errStop)
		<-d.served
		if d.err != errStop {
			t.Errorf("Serve = %v", d.err)
		}
		d.expect(fault("0", -32603), fault("1", -32600))
	})
}

// A client that does not read is not read from, and loses nothing when it reads
// on in time; otherwise its session ends, and not the bridge's memory.
func TestDownstreamReadsLate(t *testing.T) {
	for _, test := range []struct {
		name  string
		after time.Duration
		want  error
	}{{"in time", 4 * time.Minute, nil}, {"never", 6 * time.Minute, errUnread}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { readsLate(t, test.after, test.want) })
		})
	}
}

func readsLate(t *testing.T, after time.Duration, want error) {
	calls := scaletest.Of(8, 30)
	s := &wiretest.Server{}
	in, theirIn := net.Pipe()
	out, theirOut := net.Pipe()
	served := serving(t, t.Context(), s, theirIn, theirOut, DownstreamOptions{MaxMessage: 64 << 10}) // 256 KiB may wait
	var sent atomic.Int64
	go func() {
		_, _ = fmt.Fprintf(in, initialize+"\n"+initialized+"\n", "2025-06-18")
		for i := range calls {
			if _, err := fmt.Fprintln(in, tool(fmt.Sprint(i), "large", fmt.Sprintf(`{"n":%d}`, 1<<20))); err != nil {
				return
			}
			sent.Add(1)
			synctest.Wait() // until it is answered, or cannot be
		}
		_ = in.Close()
	}()
	time.Sleep(time.Second)
	for range 1000 { // what may be missed is missed
		s.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("x", 1000) + `"}}`)
	}
	synctest.Wait()
	if n := sent.Load(); n > 3 {
		t.Errorf("%d requests of a client that does not read were taken", n)
	}
	time.Sleep(after)
	if want != nil {
		if err := <-served; !errors.Is(err, want) {
			t.Errorf("Serve = %v, want %v", err, want)
		}
		_, _ = in.Close(), out.Close()
		return
	}
	answers := make(chan int, 1)
	go func() {
		n := 0
		for lines := bufio.NewReaderSize(out, 2<<20); ; {
			line, err := lines.ReadSlice('\n')
			if err != nil {
				answers <- n
				return
			}
			if len(line) > 1<<20 {
				n++
			}
		}
	}()
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	_ = theirOut.Close()
	if n := <-answers; n != calls {
		t.Errorf("%d answers came, want %d", n, calls)
	}
}

// An output that breaks ends the session.
func TestDownstreamOutputBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, theirIn := net.Pipe()
		out, theirOut := net.Pipe()
		served := serving(t, t.Context(), &wiretest.Server{}, theirIn, theirOut, DownstreamOptions{})
		_ = out.Close()
		_, _ = fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		if err := <-served; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Serve = %v", err)
		}
		_ = in.Close()
	})
}

// Reading that cannot be interrupted does not keep Serve from returning. What
// comes afterwards is dropped, and ends the reading.
func TestDownstreamStuckInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs, in := io.Pipe()
		out := &adaptertest.Log{}
		ctx, cancel := context.WithCancel(t.Context())
		served := serving(t, ctx, &wiretest.Server{}, theirs, out, DownstreamOptions{})
		_, _ = fmt.Fprintf(in, initialize+"\n"+initialized+"\n", "2025-06-18")
		synctest.Wait()
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("Serve = %v", err)
		}
		_, _ = fmt.Fprintln(in, tool("1", "echo", "1"))
		synctest.Wait() // the reading has ended: the bubble ends without it
		if got := lines(out); len(got) != 1 {
			t.Errorf("output %q", got)
		}
	})
}

// The same with files that can be interrupted: nothing at all is left, and they can still be used.
func TestDownstreamFiles(t *testing.T) {
	quiet(t)
	theirs, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	defer in.Close()
	answers, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer answers.Close()
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	served := serving(t, ctx, &wiretest.Server{}, theirs, out, DownstreamOptions{})
	_, _ = fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	buf := make([]byte, 100)
	if n, err := answers.Read(buf); err != nil || string(buf[:n]) != `{"jsonrpc":"2.0","id":1,"result":{}}`+"\n" {
		t.Errorf("Read = %q, %v", buf[:n], err)
	}
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v", err)
	}
	_, _ = fmt.Fprintln(in, "mine")
	if n, err := theirs.Read(buf); err != nil || string(buf[:n]) != "mine\n" {
		t.Errorf("Read = %q, %v", buf[:n], err)
	}
}

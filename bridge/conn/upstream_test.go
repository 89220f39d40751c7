package conn_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

const server = conn.Name("fake")

// What was lost while a connection was opened is no loss of anybody's request; what
// is wrong otherwise is said as it was.
func TestUnopened(t *testing.T) {
	cause := errors.New("cause")
	declined := server.Rejected("no", cause)
	for _, tc := range []struct {
		err  error
		kind error
		want string
	}{
		{server.Lost("its stream has ended", cause), bridge.ErrUnavailable, "server fake: handshake: its stream has ended: cause"},
		{server.Invalid("nonsense", nil), bridge.ErrUnavailable, "server fake: handshake: nonsense"},
		{server.Unsent("its connection has ended", nil), bridge.ErrUnavailable, "server fake: handshake: its connection has ended"},
		{declined, bridge.ErrRejected, declined.Error()},
		{cause, cause, "cause"},
	} {
		if got := server.Unopened(tc.err); !errors.Is(got, tc.kind) || errors.Is(got, bridge.ErrLost) || got.Error() != tc.want {
			t.Errorf("%v became %v, want %q", tc.err, got, tc.want)
		}
	}
	if got := server.Ended(server.Lost("its process has ended", nil), server.Unsent("x", cause)); got.Error() != "server fake: handshake: its process has ended: cause" {
		t.Errorf("the end of a child: %v", got)
	}
	if got := server.Ended(nil, declined); got != error(declined) {
		t.Errorf("without an end: %v", got)
	}
}

// The reason for the end of a connection is reported once, by the first that notices it.
func TestEnded(t *testing.T) {
	over := server.Lost("its process has ended", nil)
	for _, tc := range []struct {
		err  error
		want string
	}{
		{server.Unsent("its process has ended", over), "server fake: handshake: its process has ended"},
		{over, "server fake: handshake: its process has ended"},
		{server.Lost("its process has ended", errors.New("broken pipe")), "server fake: handshake: its process has ended"},
		{server.Lost("it does not read its input", errors.New("broken pipe")), "server fake: handshake: its process has ended: broken pipe"},
		{errors.New("late"), "server fake: handshake: its process has ended"},
	} {
		if got := server.Ended(over, tc.err); got.Error() != tc.want {
			t.Errorf("%v became %v, want %q", tc.err, got, tc.want)
		}
	}
	// Why it has ended may not be known yet.
	if err := server.Ended(nil, server.Unsent("it does not read its input", nil)); !errors.Is(err, bridge.ErrUnavailable) || errors.Is(err, bridge.ErrUnsent) {
		t.Errorf("what was not sent became %v, want ErrUnavailable alone", err)
	}
}

func TestLife(t *testing.T) {
	why := server.Lost("it has ended", nil)
	var never, open, closed conn.Life
	if news, gone := never.End(why); !news || gone || never.Opened() != error(why) || never.IsOpen() {
		t.Error("a connection that ends before Open does was opened, or somebody is told")
	}
	if err := open.Opened(); err != nil || !open.IsOpen() {
		t.Error("not opened:", err)
	}
	if news, gone := open.End(why); !news || !gone || open.Over() != why {
		t.Error("nobody is told of the end")
	}
	closed.Close()
	if news, gone := closed.End(why); news || gone || closed.Over() != nil || !closed.IsClosed() {
		t.Error("somebody is told of what the bridge has closed")
	}
}

func TestSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var s conn.Signal
		ctx, stop := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			wg.Go(func() {
				mu.Lock()
				within := t.Context()
				if i == 0 {
					within = ctx
				}
				errs[i] = s.Await(within, &mu)
			})
		}
		synctest.Wait()
		why := errors.New("no patience")
		stop(why)
		synctest.Wait()
		mu.Lock()
		s.Wake()
		s.Wake() // no sender waits any more
		mu.Unlock()
		wg.Wait()
		if !errors.Is(errs[0], why) || errs[1] != nil || errs[2] != nil {
			t.Error(errs)
		}
	})
}

// nowhere is a wire that nothing is sent on.
type nowhere struct{ conn.Sender }

func TestParser(t *testing.T) {
	var log bytes.Buffer
	c := conn.New("fake", nowhere{}, bridge.Nobody{}, conn.Timeouts{})
	p := parser(c, &log)
	in := c.Intake()
	var got []string
	for _, text := range []string{
		`{"jsonrpc":"2.0","method":"a"}`, "hello \x1b[31m" + strings.Repeat("x", 300), `[{"jsonrpc":"2.0","method":"b"},7,{"jsonrpc":"2.0","method":"c"}]`, `[]`, `{"jsonrpc":"2.0","method":"d"}`,
		`{"jsonrpc":"2.0","method":"e"} {"jsonrpc":"2.0","method":"f"}{"jsonrpc":"2.0","method":"g"}`, `{"jsonrpc":"2.0","method":"h"} done`,
	} {
		buf := jsonrpc.NewBuffer(len(text))
		buf.B = append(buf.B, text...)
		p.Parse(buf, buf.B, &in, func(m *jsonrpc.Message) { got = append(got, m.Method) })
	}
	if !slices.Equal(got, []string{"a", "b", "c", "d", "e", "f", "g", "h"}) {
		t.Error("messages:", got)
	}
	p.Warn()
	text := log.String()
	if strings.Count(text, "lines dropped") != 2 || !strings.Contains(text, "lines=1") || !strings.Contains(text, "lines=3") {
		t.Errorf("the log is told at once, and of the rest at the end:\n%s", text)
	}
	if !strings.Contains(text, `first="hello ␛[31mxxx`) || strings.Contains(text, strings.Repeat("x", 200)) || !strings.Contains(text, "first=7\n") {
		t.Errorf("the log has not the first of them, cut:\n%s", text)
	}
}

func parser(c *conn.Conn, log *bytes.Buffer) *conn.Parser {
	o := conn.Options{Log: slog.New(slog.NewTextHandler(log, nil))}.Filled("fake")
	return &conn.Parser{Options: o, Conn: c, Warning: "lines dropped", Unit: "lines", Quotes: true}
}

// answering is a wire to a server that answers each request with the same lines.
type answering struct {
	lines []string
	p     *conn.Parser
}

func (a *answering) Send(_ context.Context, o conn.Outgoing) error {
	o.Line.Free()
	in := a.p.Conn.Intake()
	for _, line := range a.lines {
		buf := jsonrpc.NewBuffer(len(line))
		buf.B = append(buf.B, line...)
		_ = a.p.Parse(buf, buf.B, &in, a.p.Deliver)
	}
	return nil
}

// A call gets its answer, or at once an error that says what is wrong with it, whatever
// else the server prints, and however odd it is.
func TestParserOdd(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{"ok":true}}`
	for _, tc := range []struct {
		name  string
		lines []string
		want  string // of the answer
		log   string // what it has once
	}{
		{"the id as a text", []string{`{"jsonrpc":"2.0","id":"1","result":{"ok":true}}`, `{"jsonrpc":"2.0","id":"2","result":{}}`}, answer, "ids as text"},
		{"an error with its id as a text", []string{`{"jsonrpc":"2.0","id":"1","error":{"code":1,"message":"m"}}`}, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`, "ids as text"},
		{"the id as 1.0", []string{`{"jsonrpc":"2.0","id":1.0,"result":{"ok":true}}`}, answer, "ids as text"},
		{"the id as 1e0", []string{`{"jsonrpc":"2.0","id":"1e0","result":{"ok":true}}`}, answer, "ids as text"},
		{"the id as 1.5", []string{`{"jsonrpc":"2.0","id":1.5,"result":{"other":true}}`, answer}, answer, ""},
		{"an error that is a text", []string{`{"jsonrpc":"2.0","id":1,"error":"no \"such\" channel"}`}, `"id":1,"error":{"code":-32603,"message":"no \"such\" channel"}}`, ""},
		{"its code a text", []string{`{"jsonrpc":"2.0","id":1,"error":{"code":"-32001","message":"m","data":[1]}}`}, `"error":{"code":-32001,"message":"m","data":[1]}}`, ""},
		{"its code a fraction", []string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32001.0,"message":"m"}}`}, `"error":{"code":-32001,"message":"m"}}`, ""},
		{"its code a word", []string{`{"jsonrpc":"2.0","id":1,"error":{"code":"ENOENT","message":"no file","more":1}}`}, `"error":{"code":-32603,"message":"ENOENT: no file","more":1}}`, ""},
		{"no code", []string{`{"jsonrpc":"2.0","id":1,"error":{"message":"m"}}`}, `"error":{"message":"m","code":-32603}}`, ""},
		{"its message null", []string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":null,"data":"why"}}`}, `"error":{"code":-32000,"message":"{\"code\":-32000,\"message\":null,\"data\":\"why\"}","data":"why"}}`, ""},
		{"no message", []string{`{"jsonrpc":"2.0","id":1,"error":{"code":7}}`}, `"error":{"code":7,"message":"{\"code\":7}"}}`, ""},
		{"a result of null beside it", []string{`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":7,"message":"m"}}`}, `"id":1,"error":{"code":7,"message":"m"}}`, ""},
		{"neither, both null", []string{`{"jsonrpc":"2.0","id":1,"result":null,"error":null}`}, `"result":null`, ""},
		{"an error with the id null", []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`}, `"id":1,"error":{"code":-32700,"message":"what?"}}`, ""},
		{"an error without an id", []string{`{"jsonrpc":"2.0","error":"too large"}`}, `"message":"too large"`, ""},
		{"one, and then the answer", []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what?"}}`, answer}, answer, ""},
		{"an unknown notification", []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}`, answer}, answer, "without the id of a request"},
		{"another id", []string{`{"jsonrpc":"2.0","id":"one","result":{}}`, answer}, answer, ""},
		{"a log line in JSON with the id", []string{`{"id":1,"title":"My shop"}`, answer}, answer, `first="{\"id\":1,\"title\"`},
		{"one with a method", []string{`{"id":1,"method":"GET","path":"/"}`, answer}, answer, "lines=1"},
		{"one with a result", []string{`{"id":1,"result":"ok"}`, answer}, answer, ""},
		{"one with an error", []string{`{"id":1,"error":{"code":"ENOENT"}}`, answer}, answer, ""},
		{"one that is no JSON either", []string{`{"id":1,"value":NaN}`, answer}, answer, "lines=1"},
		{"no version", []string{`{"id":1,"result":{}}`}, `jsonrpc must be \"2.0\"`, ""},
		{"a result and an error", []string{`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}`}, `not both`, ""},
		{"neither", []string{`{"jsonrpc":"2.0","id":1}`}, `neither`, ""},
		{"two results", []string{`{"jsonrpc":"2.0","id":1,"result":{},"result":{}}`}, `twice`, ""},
		{"an error of null", []string{`{"jsonrpc":"2.0","id":1,"error":null}`}, `must be an object`, ""},
		{"no version, and no object", []string{`{"id":1,"result":null}`}, `jsonrpc must be \"2.0\"`, ""},
		{"NaN", []string{`{"jsonrpc":"2.0","id":1,"result":{"n":NaN}}`}, `its answer is not JSON: NaN at byte 38`, ""},
		{"the answer, printed for debugging", []string{`INFO sending ` + answer, answer}, answer, ""},
		{"a line of a log before it on its line", []string{`{"level":"info"}` + answer}, answer, "lines=1"},
		{"-Infinity", []string{`{"jsonrpc":"2.0","id":1,"result":{"n":-Infinity}}`}, `its answer is not JSON: -Infinity at byte 38`, ""},
		{"a trailing comma", []string{`{"jsonrpc":"2.0","id":1,"result":{"n":1,}}`}, `its answer is not JSON: a member's name is expected at byte 40`, ""},
		{"text before it", []string{`DEBUG: ` + answer}, `its answer is not JSON: text before the message at byte 0`, ""},
		{"text behind it", []string{answer + ` DEBUG`}, answer, "first=DEBUG"},
		{"two on a line", []string{`{"jsonrpc":"2.0","method":"notifications/message","params":{}}` + answer}, answer, ""},
		{"a line that is cut", []string{`{"jsonrpc":"2.0","id":1,"result":{"n":`}, `its answer is not JSON: unexpected end at byte 38`, ""},
		{"bytes that are not UTF-8", []string{"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"city\":\"M\xfcnchen, K\xf6\xdfn\"}}"}, `{"jsonrpc":"2.0","id":1,"result":{"city":"M�nchen, K��n"}}`, "not UTF-8"},
		{"the same in an error", []string{"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"\xb5\"}}"}, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"�"}}`, "not UTF-8"},
		{"UTF-8", []string{`{"jsonrpc":"2.0","id":1,"result":{"city":"München 東京 🙂 ` + "\ufffd" + `"}}`}, `{"jsonrpc":"2.0","id":1,"result":{"city":"München 東京 🙂 ` + "\ufffd" + `"}}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			a := &answering{lines: tc.lines}
			synctest.Test(t, func(t *testing.T) {
				a.p = parser(conn.New("fake", a, bridge.Nobody{}, conn.Timeouts{}), &log)
				m, err := a.p.Conn.Call(t.Context(), &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"ping"}`)})
				if err != nil {
					t.Fatal(err)
				}
				if got := string(m.Append(nil, []byte("1"), nil)); !strings.Contains(got, tc.want) {
					t.Errorf("the answer is %s, want %s", got, tc.want)
				}
			})
			if a.p.Warn(); tc.log != "" && strings.Count(log.String(), tc.log) != 1 || tc.log == "" && tc.want == answer && strings.Contains(log.String(), "WARN") && !strings.Contains(tc.name, "id") {
				t.Errorf("the log is\n%swant %q once", log.String(), tc.log)
			}
		})
	}
}

// With several calls in flight an error without an id is nobody's, and the log has it.
func TestParserNobody(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		a := &answering{}
		a.p = parser(conn.New("fake", a, bridge.Nobody{}, conn.Timeouts{}), &log)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if m, err := a.p.Conn.Call(ctx, &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"ping"}`)}); !errors.Is(err, context.Canceled) {
					t.Errorf("the call ended with %v, %v", m, err)
				}
			})
		}
		synctest.Wait()
		for range 2 {
			for range 1000 { // the server may flood the log
				a.p.Deliver(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`))
			}
			time.Sleep(time.Minute)
		}
		stop()
		wg.Wait()
	})
	bridgetest.Contains(t, log.String(), "level=WARN", "without the id of a request", `err=what?`, "more=999")
	if n := strings.Count(log.String(), "without the id"); n != 2 {
		t.Errorf("2000 errors within two minutes made %d lines", n)
	}
}

// An error without an id that may be about a notification ends no call, however long the call takes.
func TestParserNotified(t *testing.T) {
	for _, tc := range []struct {
		name string
		code string
		note bool // a notification was sent before
		want string
	}{
		{"a notification that the server cannot read", "-32600", true, `"ok":true`},
		{"one that it fails to handle", "-32603", true, `"ok":true`},
		{"no notification", "-32603", false, "no id"},
		{"no JSON", "-32700", true, "no id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answering{}
				c := conn.New("fake", a, bridge.Nobody{}, conn.Timeouts{})
				a.p = parser(c, new(bytes.Buffer))
				call := func() string {
					m, err := c.Call(t.Context(), &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"ping"}`)})
					if err != nil {
						t.Error(err)
					}
					return bridgetest.Text(m)
				}
				deliver := func(text string) { a.p.Deliver(bridgetest.Parse(t, text)) }
				if tc.note {
					_ = c.Notify(t.Context(), &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)})
				}
				for n := 1; n <= 2; n++ {
					go func() {
						time.Sleep(time.Second) // the call waits
						deliver(`{"jsonrpc":"2.0","id":null,"error":{"code":` + tc.code + `,"message":"no id"}}`)
						time.Sleep(time.Minute)
						deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"ok":true}}`, n))
					}()
					bridgetest.Contains(t, call(), tc.want)
					tc.want = "no id" // the second call has no notification before it
					time.Sleep(time.Hour)
				}
			})
		})
	}
}

// Bytes that are not UTF-8 take three times their room, which has the limit of all others,
// also in parts of what came together.
func TestParserGrown(t *testing.T) {
	bad := strings.Repeat("\xff", 1<<20)
	for _, tc := range []struct{ name, text string }{
		{"alone", `{"jsonrpc":"2.0","id":1,"result":{"x":"` + bad + `"}}`},
		{"in a batch", `[{"jsonrpc":"2.0","id":1,"result":{"x":"` + bad + `"}}]`},
		{"behind another", `{"jsonrpc":"2.0","method":"m"}{"jsonrpc":"2.0","id":1,"result":{"x":"` + bad + `"}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &answering{lines: []string{tc.text}}
			a.p = parser(conn.New("fake", a, bridge.Nobody{}, conn.Timeouts{}), new(bytes.Buffer))
			a.p.MaxMessage = 2 << 20
			m, err := a.p.Conn.Call(t.Context(), &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"ping"}`)})
			if got := bridgetest.Text(m); err != nil || !strings.Contains(got, "upstream_too_large") {
				t.Errorf("the answer is %.200s, %v", got, err)
			}
		})
	}
}

// Progress reaches its call also where the server gives the token back as a text.
func TestParserToken(t *testing.T) {
	var said []string
	a := &answering{lines: []string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"1","progress":1}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`}}
	a.p = parser(conn.New("fake", a, bridge.Nobody{}, conn.Timeouts{}), new(bytes.Buffer))
	r := &bridge.Request{
		Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"mine"}}}`),
		Back:    hearing{said: &said},
	}
	if _, err := a.p.Conn.Call(t.Context(), r); err != nil || len(said) != 1 || !strings.Contains(said[0], `"progressToken":"mine"`) {
		t.Errorf("the client heard %q, %v", said, err)
	}
}

type hearing struct {
	bridge.Nobody
	said *[]string
}

func (h hearing) Notify(m *jsonrpc.Message) { *h.said = append(*h.said, bridgetest.Text(m)) }

func TestFilled(t *testing.T) {
	if o := (conn.Options{}).Filled("fake"); o.Log == nil || o.MaxMessage != 16<<20 {
		t.Errorf("%+v", o)
	}
	if o := (conn.Options{MaxMessage: 5}).Filled("fake"); o.MaxMessage != 5 {
		t.Errorf("%+v", o)
	}
}

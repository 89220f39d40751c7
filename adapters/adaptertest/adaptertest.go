// Package adaptertest has the suite that every upstream adapter must pass, whatever its wire.
package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// Run runs the suite. start returns an adapter that connects to a [Server] of its own. It must end each
// server that it starts by t.Cleanup.
func Run(t *testing.T, start func(t *testing.T) bridge.Adapter) {
	play(t, start, legacy(1<<20, 6))
}

// RunAgain runs the suite with fewer calls at once and without the largest messages. It is for a
// variant of a wire that has passed Run.
func RunAgain(t *testing.T, start func(t *testing.T) bridge.Adapter) {
	play(t, start, legacy(64<<10+1, 1))
}

// legacy returns the parts for a legacy server. largest bounds messages, in bytes. each is the number
// of calls of each of 100 clients.
func legacy(largest, each int) []part {
	return []part{
		{"Handshake", handshake},
		{"HandshakeThatFails", handshakeThatFails},
		{"HandshakeThatHangs", handshakeThatHangs},
		{"Ids", ids},
		{"Payload", payload},
		{"LargePayload", largePayload(largest)},
		{"LineBreaks", lineBreaks},
		{"Errors", errorAnswers},
		{"Notifications", notifications},
		{"Progress", progress},
		{"Questions", questions},
		{"Withdraw", withdraw},
		{"Ping", ping},
		{"Cancel", cancel},
		{"StrayAnswers", strayAnswers},
		{"Concurrent", concurrent(each)},
		{"Lost", lostWire},
		{"Close", closing},
	}
}

// part is a part of the suite.
type part struct {
	name string
	test func(*testing.T, bridge.Adapter)
}

// play runs parts, each with its own adapter.
func play(t *testing.T, start func(t *testing.T) bridge.Adapter, parts []part) {
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			ignore := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, ignore) }) // runs last
			p.test(t, start(t))
		})
	}
}

// initialize carries the client's params unchanged, its
// result comes back unchanged, and initialized goes out before anything else.
func handshake(t *testing.T, a bridge.Adapter) {
	up := Open(t, a, &Client{})
	g := up.Server()
	if g.Revision != "2025-11-25" {
		t.Errorf("Revision = %q, want %q", g.Revision, "2025-11-25")
	}
	if got := string(g.Result); got != initializeResult {
		t.Errorf("Result = %s\nwant     %s", got, initializeResult)
	}
	if want := `{"tools":{"listChanged":true},"logging":{},"x-new":{"n":12345678901234567890}}`; string(g.Capabilities) != want {
		t.Errorf("Capabilities = %s, want %s", g.Capabilities, want)
	}
	seen := Seen(t, up)
	if len(seen) != 3 || !strings.Contains(seen[0], `"method":"initialize"`) || !strings.Contains(seen[0], string(Caller("").Params)) ||
		!strings.Contains(seen[1], `"method":"notifications/initialized"`) || strings.Contains(seen[1], `"id"`) {
		t.Errorf("the server received %q\nwant initialize with the client's params, notifications/initialized, the test's own request", seen)
	}
}

func handshakeThatFails(t *testing.T, a bridge.Adapter) {
	for _, c := range []struct{ name, orders, want string }{
		{"refused", `"error":{"code":-32602,"message":"too old"}`, "too old"},
		{"modern", `"result":{"protocolVersion":"2026-07-28","capabilities":{}}`, "2026-07-28"},
		{"nothing useful", `"result":null`, ""},
		{"lost", `"then":"die"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rest := &Client{}
			up, err := a.Open(t.Context(), Caller(`"initialize":{`+c.orders+`}`), rest)
			if err == nil {
				_ = up.Close(t.Context())
				t.Fatal("Open succeeded")
			}
			if !errors.Is(err, bridge.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open: %v, want ErrUnavailable with %q", err, c.want)
			}
			rest.NoGone(t)
		})
	}
}

// If a server does not answer initialize, Open returns at the end of its context. R-020: Open does not
// cancel initialize.
func handshakeThatHangs(t *testing.T, a bridge.Adapter) {
	why := errors.New("no patience")
	for _, c := range []struct {
		name string
		ctx  func() (context.Context, context.CancelFunc)
	}{
		{"deadline", func() (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
		}},
		{"ended already", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(why)
			return ctx, func() {}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := c.ctx()
			defer cancel()
			up, err := a.Open(ctx, Caller(`"initialize":{"then":"hang"}`), &Client{})
			if err == nil {
				_ = up.Close(t.Context())
				t.Fatal("Open succeeded")
			}
			if !errors.Is(err, why) {
				t.Errorf("Open: %v, want the context's cause", err)
			}
		})
	}
}

// D0.1: requests have unique ids on the wire, and answers reach the right calls.
func ids(t *testing.T, a bridge.Adapter) {
	up := Open(t, a, &Client{})
	texts := []string{`1`, `1`, `"1"`, `12345678901234567890`, `"é\"\\u0000"`, `-7`, `1.50`}
	var calls []<-chan Outcome
	for i, id := range texts {
		calls = append(calls, Go(t.Context(), t, up, nil, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"test/echo","params":{"await":"release","n":%d}}`, id, i)))
	}
	Notify(t, up, `{"jsonrpc":"2.0","method":"release"}`)
	used := map[string]bool{}
	for i, call := range calls {
		got := (<-call).Result(t)
		var id string
		if _, rest, ok := strings.Cut(got, `{"id":`); ok {
			id, _, _ = strings.Cut(rest, ",")
		}
		if used[id] || id == "" {
			t.Errorf("call %d: id %q on the wire is not unique", i, id)
		}
		used[id] = true
		if want := fmt.Sprintf(`"n":%d}`, i); !strings.Contains(got, want) {
			t.Errorf("call %d: result %s, want %s in it", i, got, want)
		}
	}
}

// odd is JSON that decoding and encoding would change.
const odd = `{"big":12345678901234567890,"float":1.0,"exp":1E+2,"neg":-0,"z":1,"a":{"":null},"dup":1,"dup":2,` +
	`"esc":"\u00e9\/\ud83d\ude00\n","raw":"é😀<&>","long":0.1000000000000000055511151231257827,"_meta":{"x":[[],{}]}}`

// D0.4: params and results arrive with the same bytes.
func payload(t *testing.T, a bridge.Adapter) {
	up := Open(t, a, &Client{})
	if _, ok := up.(bridge.TakesEdits); !ok {
		t.Error("the Upstream is no TakesEdits: requests are copied for it")
	}
	got := Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"no/such-method","params":`+odd+`}`).Result(t)
	if !strings.Contains(got, `"params":`+odd) {
		t.Errorf("result = %s\nwant params %s", got, odd)
	}
	got = Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"result":`+odd+`}}`).Result(t)
	if got != odd {
		t.Errorf("result = %s\nwant     %s", got, odd)
	}
	for _, result := range []string{`null`, `"text"`, `[1,2]`, `0`, `{}`} {
		got := Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"say":[{"jsonrpc":"2.0","result":`+result+`,"id":"$id"}],"then":"hang"}}`).Result(t)
		if got != result {
			t.Errorf("result = %s, want %s", got, result)
		}
	}
	got = Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"without/params"}`).Result(t)
	if strings.Contains(got, "params") {
		t.Errorf("result = %s: params where there were none", got)
	}
}

// large messages pass, both ways.
func largePayload(largest int) func(*testing.T, bridge.Adapter) {
	return func(t *testing.T, a bridge.Adapter) {
		up := Open(t, a, &Client{})
		for _, size := range []int{4 << 10, 64<<10 - 1, 64 << 10, largest} {
			text := strings.Repeat(`aé\n`, size/5) + strings.Repeat("x", size%5)
			got := Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"test/echo","params":{"text":"`+text+`"}}`).Result(t)
			if !strings.Contains(got, `"text":"`+text+`"`) {
				t.Errorf("%d bytes: another text came back (%d bytes in all)", len(text), len(got))
			}
		}
	}
}

// a client may send JSON with line breaks between tokens.
func lineBreaks(t *testing.T, a bridge.Adapter) {
	up := Open(t, a, &Client{})
	got := Call(t.Context(), t, up, nil, "{\r\n  \"jsonrpc\": \"2.0\",\n\"id\": 1, \"method\": \"test/echo\",\n \"params\": {\n\t\"a\":\r\n\"b\\nc\"\n}\n}").Result(t)
	if !strings.Contains(got, `"b\nc"`) {
		t.Errorf("result = %q", got)
	}
}

// A JSON-RPC error is an answer.
func errorAnswers(t *testing.T, a bridge.Adapter) {
	up := Open(t, a, &Client{})
	const want = `{"code":-32000,"message":"no","data":{"n":12345678901234567890},"x":1}`
	o := Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"error":`+want+`}}`)
	if o.Err != nil || string(Parse(t, o.Answer).Error) != want {
		t.Errorf("the call ended with %s, %v, want the error %s", o.Answer, o.Err, want)
	}
}

// D0.5, D0.10: notifications pass both ways, in order, known or unknown, and are not
// answered.
func notifications(t *testing.T, a bridge.Adapter) {
	rest := &Client{}
	up := Open(t, a, rest)
	for i := range 20 {
		Notify(t, up, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/x-%d","params":%s}`, i, odd))
	}
	WaitServer(t, up, "notifications/x-19")
	var got []string
	for _, line := range Seen(t, up) {
		if strings.Contains(line, `"method":"notifications/x-`) {
			got = append(got, line)
		}
	}
	if len(got) != 20 {
		t.Fatalf("the server received %d notifications, want 20", len(got))
	}
	for i, line := range got {
		if strings.Contains(line, `"id"`) || find([]string{line}, fmt.Sprintf(`"notifications/x-%d"`, i), odd) == "" {
			t.Errorf("notification %d arrived as %s", i, line)
		}
	}

	want := []string{
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":` + odd + `}}`,
		`{"jsonrpc":"2.0","method":"vendor/unknown","params":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"2"}}`,
	}
	Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"say":[`+strings.Join(want, ",")+`]}}`).Result(t)
	if got := rest.WaitSaid(t, len(want)); !slices.Equal(got, want) {
		t.Errorf("notifications = %q\nwant            %q", got, want)
	}
	for _, line := range Seen(t, up) {
		if !strings.Contains(line, `"method"`) {
			t.Errorf("a notification was answered: %s", line)
		}
	}
}

// D0.2: progress comes back to the call's own client, in order and before the answer.
// It has the client's token, with its type and digits.
func progress(t *testing.T, a bridge.Adapter) {
	rest := &Client{}
	up := Open(t, a, rest)
	const report = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"x":12345678901234567890}}`
	for _, token := range []string{`1`, `"1"`, `"$tok\u00e9n"`, `12345678901234567890`} {
		back := &Client{}
		ch := make(chan Outcome, 1)
		var before []string
		m := Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"x":1,"progressToken":`+token+`},"say":[`+
			fmt.Sprintf(report, `"$token"`, 1)+`,`+
			fmt.Sprintf(report, `"nobody's"`, 2)+`,`+
			fmt.Sprintf(report, `987654`, 3)+`,`+
			fmt.Sprintf(report, `"$token"`, 4)+`,`+
			`{"jsonrpc":"2.0","id":"$id","result":{"token":"$token"}},`+
			fmt.Sprintf(report, `"$token"`, 5)+`],"then":"hang"}}`)
		go func() {
			a, err := up.Call(t.Context(), &bridge.Request{Message: m, Back: back})
			before = back.Said()
			ch <- Outcome{Text(a), err}
		}()
		got := (<-ch).Result(t)
		if got == `{"token":`+token+`}` && token != `1` {
			t.Errorf("the client's token %s is on the wire", token)
		}
		want := []string{fmt.Sprintf(report, token, 1), fmt.Sprintf(report, token, 4)}
		if !slices.Equal(before, want) {
			t.Errorf("token %s: before the answer came %q\nwant %q", token, before, want)
		}
		Seen(t, up) // so that all lines after the answer were read
		if after := back.Said(); len(after) != len(want) {
			t.Errorf("token %s: progress after the answer: %q", token, after[len(want):])
		}
	}
	if got := rest.Said(); len(got) > 0 {
		t.Errorf("progress reached the connection's client: %q", got)
	}
	// Without a token of the client, the call requests no progress.
	got := Call(t.Context(), t, up, &Client{}, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"x":1}}}`).Result(t)
	if strings.Contains(got, "progressToken") {
		t.Errorf("a token that the client did not send: %s", got)
	}
}

// D0.1: the server's questions arrive with their params. Their answers have their ids, whatever the ids
// and the order are.
func questions(t *testing.T, a bridge.Adapter) {
	rest := &Client{}
	up := Open(t, a, rest)
	ids := []string{`1`, `"1"`, `"q\u00e9"`, `12345678901234567890`}
	var say []string
	for _, id := range ids {
		say = append(say, `{"jsonrpc":"2.0","id":`+id+`,"method":"sampling/createMessage","params":`+odd+`}`)
	}
	// The first question stays open until the others have come.
	say = slices.Insert(say, 1, `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
	call := Go(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"await":"last one","say":[`+strings.Join(say, ",")+`]}}`)
	rest.WaitQuestion(t, len(ids)-1)
	for i := range slices.Backward(ids) {
		q := rest.WaitQuestion(t, i)
		if !strings.Contains(q.Line, `"params":`+odd) {
			t.Errorf("question %d = %s, want its params unchanged", i, q.Line)
		}
		what := ""
		if i == 0 {
			what = "last one"
		}
		q.Reply(Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":"x","result":{"n":%d,"odd":%s,"what":"%s"}}`, i, odd, what)))
		q.Reply(Parse(t, `{"jsonrpc":"2.0","id":"x","result":{"again":true}}`)) // a second answer is ignored
	}
	(<-call).Result(t)
	seen := Seen(t, up)
	for i, id := range ids {
		if find(seen, `"id":`+id+`,"result":`, fmt.Sprintf(`{"n":%d,"odd":%s`, i, odd)) == "" {
			t.Errorf("question %s had no answer; the server received %q", id, seen)
		}
	}
	if find(seen, `"again"`) != "" {
		t.Error("a question was answered twice")
	}
	if find(seen, `"id":1,"error":`, "-32600") == "" {
		t.Errorf("a question with the id of an open one was not refused; the server received %q", seen)
	}
	// An error is also an answer, and the server may use an id again.
	call = Go(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"await":"user said no","say":[{"jsonrpc":"2.0","id":1,"method":"roots/list"}]}}`)
	rest.WaitQuestion(t, len(ids)).Reply(Parse(t, `{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"user said no"}}`))
	(<-call).Result(t)
}

// the server cancels a question, by its own id. A late answer is not sent.
func withdraw(t *testing.T, a bridge.Adapter) {
	rest := &Client{}
	up := Open(t, a, rest)
	Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"say":[`+
		`{"jsonrpc":"2.0","id":"a","method":"roots/list"},{"jsonrpc":"2.0","id":7,"method":"roots/list"},`+
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7"}},`+ // of no question
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"no longer\u002c thanks"}},`+
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}]}}`).Result(t)
	if got := rest.WaitWithdrawn(t, 1); len(got) != 1 || !strings.Contains(got[0], `"id":7`) || !strings.HasSuffix(got[0], " no longer, thanks") {
		t.Errorf("withdrawn: %q, want the question 7 and the server's reason", got)
	}
	rest.WaitQuestion(t, 1).Reply(Parse(t, `{"jsonrpc":"2.0","id":3,"result":{"late":true}}`))
	rest.WaitQuestion(t, 0).Reply(Parse(t, `{"jsonrpc":"2.0","id":3,"result":{"wanted":true}}`))
	WaitServer(t, up, "wanted")
	if line := find(Seen(t, up), `"late"`); line != "" {
		t.Errorf("the answer to a withdrawn question was sent: %s", line)
	}
	if got := rest.Said(); len(got) > 0 {
		t.Errorf("what is about a question was passed on as a notification: %q", got)
	}
}

// the bridge itself answers a ping at once, under its id.
func ping(t *testing.T, a bridge.Adapter) {
	rest := &Client{}
	up := Open(t, a, rest)
	for _, id := range []string{`5`, `"p\u00e9"`} {
		quoted := strings.ReplaceAll(strings.ReplaceAll(`"id":`+id+`,"result":{}`, `\`, `\\`), `"`, `\"`)
		Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"say":[{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}],"await":"`+quoted+`"}}`).Result(t)
	}
	rest.mu.Lock()
	defer rest.mu.Unlock()
	if len(rest.questions) > 0 {
		t.Errorf("a ping was passed on: %q", rest.questions[0].Line)
	}
}

// R-156, D0.3: a call that is cancelled ends at once with the reason. The server gets the
// cancellation with its own id of the call and the client's reason. Its late answer is dropped.
func cancel(t *testing.T, a bridge.Adapter) {
	both := &Client{} // only some transports show to which call a notification belongs
	up := Open(t, a, both)
	why := bridge.TakenBack(Parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"mine","reason":"the \"user\" changed his mind"}}`))
	ctx, stop := context.WithCancelCause(t.Context())
	call := Go(ctx, t, up, both, `{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"then":"hang","_meta":{"progressToken":"p"},`+
		`"say":[{"jsonrpc":"2.0","method":"under/way","params":{"id":"$id"}},{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"$token","progress":1}}]}}`)
	id := string(Parse(t, both.WaitSaid(t, 2)[0]).Params)
	id = strings.TrimSuffix(strings.TrimPrefix(id, `{"id":`), `}`)
	stop(why)
	if o := <-call; !errors.Is(o.Err, why) || o.Answer != "" {
		t.Errorf("the call ended with %q, %v, want %v", o.Answer, o.Err, why)
	}
	WaitServer(t, up, "notifications/cancelled")
	if line := find(Seen(t, up), `"method":"notifications/cancelled"`); !strings.Contains(line, `"requestId":`+id) || strings.Contains(line, "mine") || !strings.Contains(line, `"reason":"the \"user\" changed his mind"`) {
		t.Errorf("the server received %s, want the id %s and the client's reason", line, id)
	}
	Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":"mine","method":"m","params":{"say":[`+
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`+id+`,"progress":2}},{"jsonrpc":"2.0","id":`+id+`,"result":{"late":1}}]}}`).Result(t)
	if got := both.Said(); len(got) != 2 {
		t.Errorf("progress of a cancelled call: %q", got[2:])
	}
	// The context ended before the call began.
	if o := Call(ctx, t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"then":"hang"}}`); !errors.Is(o.Err, why) {
		t.Errorf("the call ended with %q, %v, want %v", o.Answer, o.Err, why)
	}
	Seen(t, up) // the connection works
}

// D0.3: answers to no call are ignored.
func strayAnswers(t *testing.T, a bridge.Adapter) {
	rest := &Client{}
	up := Open(t, a, rest)
	got := Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"say":[`+
		`{"jsonrpc":"2.0","id":99999,"result":{"stray":1}},{"jsonrpc":"2.0","id":"none","result":{"stray":2}},{"jsonrpc":"2.0","id":-1,"result":{"stray":3}},`+
		`{"jsonrpc":"2.0","id":99999999999999999999,"result":{"stray":4}},{"jsonrpc":"2.0","error":{"code":-32700,"message":"stray"}},`+
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"stray"}},`+
		`{"jsonrpc":"2.0","id":"$id","result":{"mine":1}},{"jsonrpc":"2.0","id":"$id","result":{"mine":2}}],"then":"hang"}}`).Result(t)
	if got != `{"mine":1}` {
		t.Errorf("result = %s, want the first with the id", got)
	}
	Seen(t, up)
	if got := rest.Said(); len(got) > 0 {
		t.Errorf("passed on as notifications: %q", got)
	}
}

// calls of 100 clients that all use the same ids. "make soak" makes 10,000 of them.
func concurrent(each int) func(*testing.T, bridge.Adapter) {
	return func(t *testing.T, a bridge.Adapter) {
		up := Open(t, a, &Client{})
		var all sync.WaitGroup
		for client := range 100 {
			all.Go(func() {
				for n := range scaletest.Of(each, 100) {
					token := ""
					if n%10 == 0 {
						token = fmt.Sprintf(`"_meta":{"progressToken":"%d-%d"},"say":[{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"$token","progress":%d}}],`, client, n, n)
					}
					back := &Client{}
					mark := fmt.Sprintf(`"client":%d,"n":%d`, client, n)
					m := Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s%s}}`, n, token, mark))
					a, err := up.Call(t.Context(), &bridge.Request{Message: m, Back: back})
					if err != nil || !strings.Contains(string(a.Result), mark) {
						t.Errorf("client %d, call %d: %s, %v", client, n, Text(a), err)
						return
					}
					a.Release()
					if said := back.Said(); token != "" && (len(said) != 1 || !strings.Contains(said[0], fmt.Sprintf(`"%d-%d","progress":%d`, client, n, n))) {
						t.Errorf("client %d, call %d: progress %q", client, n, said)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

// when the wire is lost, every pending call gets one error at once, questions are withdrawn,
// and the client is notified once.
func lostWire(t *testing.T, a bridge.Adapter) {
	rest := &Client{}
	up := Open(t, a, rest)
	var calls []<-chan Outcome
	for i := range 50 {
		say := ""
		if i == 0 {
			say = `,"say":[{"jsonrpc":"2.0","id":1,"method":"roots/list"}]`
		}
		calls = append(calls, Go(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"then":"hang"`+say+`}}`))
	}
	q := rest.WaitQuestion(t, 0)
	calls = append(calls, Go(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"then":"die"}}`))
	for _, call := range calls {
		if o := <-call; !lost(o.Err) || o.Answer != "" {
			t.Errorf("a pending call ended with %q, %v, want ErrLost", o.Answer, o.Err)
		}
	}
	if err := rest.WaitGone(t); !lost(err) {
		t.Errorf("Gone(%v), want ErrLost", err)
	}
	rest.WaitWithdrawn(t, 1)
	q.Reply(Parse(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)) // dropped
	if o := Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m"}`); !lost(o.Err) {
		t.Errorf("a later call ended with %q, %v, want ErrLost", o.Answer, o.Err)
	}
	if err := up.Notify(t.Context(), &bridge.Request{Message: Parse(t, `{"jsonrpc":"2.0","method":"m"}`)}); !lost(err) {
		t.Errorf("a later Notify: %v, want ErrLost", err)
	}
	if err := up.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if gone := rest.Gones(); len(gone) != 1 {
		t.Errorf("Gone was called %d times: %v", len(gone), gone)
	}
}

// Close ends pending calls, causes no Gone, and may be called concurrently.
func closing(t *testing.T, a bridge.Adapter) {
	rest := &Client{}
	up := Open(t, a, rest)
	var calls []<-chan Outcome
	for range 10 {
		calls = append(calls, Go(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"then":"hang"}}`))
	}
	Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"say":[{"jsonrpc":"2.0","id":1,"method":"roots/list"}]}}`).Result(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := up.Close(context.Background()); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	for _, call := range calls {
		if o := <-call; o.Err == nil {
			t.Errorf("a pending call ended with %q, want an error", o.Answer)
		}
	}
	all.Wait()
	rest.WaitWithdrawn(t, 1)
	if o := Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m"}`); o.Err == nil {
		t.Errorf("a later call ended with %q, want an error", o.Answer)
	}
	rest.NoGone(t)
}

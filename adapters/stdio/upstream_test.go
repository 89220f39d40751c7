package stdio

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

func init() {
	children["server"] = func() { serveFake(false) }
	children["modern server"] = func() { serveFake(true) }
	children["deaf"] = func() { deaf(false) }
	children["deaf and asking"] = func() { deaf(true) }
	children["ends during the handshake"] = func() { _, _ = bufio.NewReader(os.Stdin).ReadBytes('\n'); os.Exit(3) }
	children["indented"] = func() {
		fmt.Print("{\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1,\n  \"result\": {}\n}\n\x1b[1mready\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	children["headers"] = func() {
		fmt.Print("Content-Length: 37\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}")
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	children["silent"] = func() { _, _ = io.Copy(io.Discard, os.Stdin) }
}

// serveFake is the suite's server, which also does what only a child can. Params:
//
//	print      texts that go to stdout as they are
//	pad        a size: an answer of so many bytes, with its id first or last
//	log        a text that goes to stderr as it is
//	environ    the answer is the environment
//	mute       stdout is closed
//	leave      a grandchild that holds stdout is left behind by the exit
func serveFake(modern bool) {
	s := &adaptertest.Server{Die: func() { os.Exit(7) }, Modern: modern}
	in, out := io.Pipe()
	go func() { _ = s.ServeLines(in, os.Stdout); os.Exit(0) }()
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			out.Close()
			select {} // the other goroutine ends the process
		}
		var r struct {
			ID     json.RawMessage
			Params struct {
				Print               []string
				Pad                 int
				IDLast, Mute, Leave bool
				Log                 string
				Environ             bool
			}
		}
		_ = json.Unmarshal(line, &r)
		p := r.Params
		for _, text := range p.Print {
			_, _ = os.Stdout.WriteString(text)
		}
		_, _ = os.Stderr.WriteString(p.Log)
		switch {
		case p.Pad > 0 && p.IDLast:
			fmt.Printf(`{"jsonrpc":"2.0","result":{"id":1,"pad":"%s"},"id":%s}`+"\n", strings.Repeat("x", p.Pad), r.ID)
		case p.Pad > 0:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"id":1,"pad":"%s"}}`+"\n", r.ID, strings.Repeat("x", p.Pad))
		case p.Environ:
			env, _ := json.Marshal(os.Environ())
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, env)
		case p.Mute:
			os.Stdout.Close()
		case p.Leave:
			c := exec.Command(os.Args[0])
			c.Env, c.Stdout = childEnv("stubborn"), os.Stdout
			if err := c.Start(); err != nil {
				panic(err)
			}
			os.Exit(5)
		default:
			_, _ = out.Write(line)
		}
	}
}

// deaf finishes the handshake and reads no more. One that asks prints pings
// for ever.
func deaf(asks bool) {
	in := bufio.NewReaderSize(os.Stdin, 16) // so that little is read ahead
	for range 2 {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if bytes.Contains(line, []byte("initialize\"")) {
			fmt.Println(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`)
		}
	}
	id := strings.Repeat("p", 2000)
	for n := 0; asks; n++ {
		if _, err := fmt.Printf(`{"jsonrpc":"2.0","id":"%s%d","method":"ping"}`+"\n", id, n); err != nil {
			return
		}
	}
	time.Sleep(time.Hour) // select {} would be a deadlock to the runtime, which ends the process
}

// hasty is how long children of these tests are let live that do not end by
// themselves.
const hasty = 50 * time.Millisecond

// adapter runs the test binary as that child. A child that takes its time to
// end is killed soon.
func adapter(t testing.TB, mode string, o conn.Options) *Adapter {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := Config{Command: path, StopStdin: time.Hour, StopTerm: hasty, Env: map[string]string{
		childVariable: mode, depthVariable: os.Getenv(depthVariable) + "I", "GORACE": "atexit_sleep_ms=0"}}
	if mode != "server" && mode != "modern server" {
		c.StopStdin = hasty
	}
	a := New("fake", c, o)
	a.silence = time.Hour
	return a
}

// quiet checks that nothing is left at the test's end: goroutines, and with
// them, processes, since the goroutine that watches a child ends last.
func quiet(t testing.TB) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

func call(t testing.TB, up bridge.Upstream, params string) adaptertest.Outcome {
	t.Helper()
	return adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":`+params+`}`)
}

func goCall(t testing.TB, ctx context.Context, up bridge.Upstream, params string) <-chan adaptertest.Outcome {
	t.Helper()
	return adaptertest.Go(ctx, t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":`+params+`}`)
}

func TestSuite(t *testing.T) {
	adaptertest.Run(t, func(t *testing.T) bridge.Adapter { return adapter(t, "server", conn.Options{}) })
}

// what is no message is dropped, counted and logged; BOM, CRLF
// and blank lines are nothing special.
func TestNoise(t *testing.T) {
	quiet(t)
	var log adaptertest.Log
	rest := &adaptertest.Client{}
	up := adaptertest.Open(t, adapter(t, "server", conn.Options{Log: log.Logger()}), rest)
	const note = `{\"jsonrpc\":\"2.0\",\"method\":\"n%d\"}`
	print := fmt.Sprintf(`"Listening on stdio\n", "\n\r\n  \t\n", "`+note+`\r\n", "{\"jsonrpc\":\n", "{}\n", "[]\n", "[1]\n", "\u001b[31mred\u001b[0m\n", "  `+note+`  \n", "`+note+`trailing\n", "null\n"`, 1, 2, 3)
	call(t, up, `{"print":[`+print+`]}`).Result(t)
	want := []string{`{"jsonrpc":"2.0","method":"n1"}`, `{"jsonrpc":"2.0","method":"n2"}`, `{"jsonrpc":"2.0","method":"n3"}`}
	if got := rest.Said(); !slices.Equal(got, want) {
		t.Errorf("notifications = %q, want %q", got, want)
	}
	if err := up.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(log.String()) {
		if _, count, ok := strings.Cut(line, "lines="); ok {
			var lines int
			fmt.Sscan(count, &lines)
			n += lines
			if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "server=fake") {
				t.Errorf("logged %q, want a warning with the server's name", line)
			}
		}
	}
	if n != 8 {
		t.Errorf("%d lines counted as dropped, want 8:\n%s", n, log.String())
	}
}

// lines up to the limit pass; above it, the very call that the
// line answers gets an error, wherever the id stands, and all others live on.
func TestLargeAnswers(t *testing.T) {
	quiet(t)
	limit := scaletest.Of(1, 16) << 20
	for _, c := range []struct {
		name   string
		pad    int
		last   bool
		passes bool
	}{
		{"64 KiB", 64 << 10, false, true},
		{"half", limit / 2, true, true},
		{"the limit", limit - 100, false, true},
		{"the limit, id last", limit - 100, true, true},
		{"more", limit + 64<<10, false, false},
		{"more, id last", limit + 64<<10, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := adaptertest.Open(t, adapter(t, "server", conn.Options{MaxMessage: limit}), &adaptertest.Client{})
			other := goCall(t, t.Context(), up, `{"await":"release"}`)
			o := call(t, up, fmt.Sprintf(`{"pad":%d,"idlast":%v}`, c.pad, c.last))
			switch {
			case c.passes:
				if got := o.Result(t); len(got) < c.pad {
					t.Errorf("%d bytes of %d came", len(got), c.pad)
				}
			case o.Err != nil || !strings.Contains(o.Answer, fmt.Sprintf("larger than the limit of %d bytes", limit)) || !strings.Contains(o.Answer, "upstream_too_large"):
				t.Errorf("the call ended with %.300q, %v, want an error that names the limit", o.Answer, o.Err)
			}
			adaptertest.Notify(t, up, `{"jsonrpc":"2.0","method":"release"}`)
			(<-other).Result(t)
		})
	}
}

// what a child writes to stderr is logged under its name, whatever it
// is, and nothing else comes of it.
func TestStderr(t *testing.T) {
	quiet(t)
	var log adaptertest.Log
	rest := &adaptertest.Client{}
	up := adaptertest.Open(t, adapter(t, "server", conn.Options{Log: log.Logger()}), rest)
	call(t, up, `{"log":"ERROR: it burns\r\n\n{\"jsonrpc\":\"2.0\",\"method\":\"note\"}\n`+strings.Repeat("x", 1<<20)+`\nunfinished"}`).Result(t)
	eventually(t, "the long line is logged", func() bool { return strings.Contains(log.String(), "xxx") })
	said := func() string { return up.(interface{ LastLines() string }).LastLines() }
	eventually(t, "operators see it", func() bool { return strings.Contains(said(), "xxx") })
	if got := said(); !strings.HasPrefix(got, "ERROR: it burns\n{") || len(got) > tailLines*(tailWidth+4) {
		t.Errorf("operators see %.200q of %d bytes", got, len(got))
	}
	if err := up.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := log.String()
	for _, want := range []string{`level=INFO msg=stderr server=fake text="ERROR: it burns"`, strings.Repeat("x", maxLogLine) + "…", "text=unfinished"} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %.100q:\n%.1000s", want, got)
		}
	}
	if strings.Contains(got, strings.Repeat("x", maxLogLine+1)) || strings.Contains(got, "text=\"\"") {
		t.Error("a long line was not cut, or an empty one was logged")
	}
	if out := rest.Said(); len(out) > 0 {
		t.Errorf("stderr was taken for stdout: %q", out)
	}
}

// What fails before or in the handshake says why, and leaves nothing.
func TestOpenFails(t *testing.T) {
	for _, c := range []struct{ mode, want string }{
		{"fails", "handshake: its process has ended (exit status 3)"}, // perhaps before initialize is written
		{"ends during the handshake", "handshake: its process has ended (exit status 3)"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			quiet(t)
			t.Setenv("FOO_KEY", "x")
			t.Setenv("UNRELATED_KEY", "x")
			rest := &adaptertest.Client{}
			up, err := adapter(t, c.mode, conn.Options{}).Open(t.Context(), adaptertest.Caller(""), rest)
			if err == nil {
				_ = up.Close(done())
				t.Fatal("Open succeeded")
			}
			if !errors.Is(err, bridge.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open: %v, want %q", err, c.want)
			}
			if said := "(exit status 3)\nits last lines on stderr:\n  starting\n  set FOO_KEY\n"; c.mode == "fails" && (!strings.Contains(err.Error(), said) || !strings.HasSuffix(err.Error(), "\nFOO_KEY is set here and was not passed: --env FOO_KEY, or env_pass: [FOO_KEY] in the file") || strings.Contains(bridge.Brief(err), "starting")) {
				t.Errorf("Open: %v, want its stderr behind what has happened, and then the variable", err)
			}
			rest.NoGone(t)
		})
	}
	t.Run("no such program", func(t *testing.T) {
		quiet(t)
		a := New("fake", Config{Command: "no-such-program"}, conn.Options{})
		_, err := a.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
		if e, ok := errors.AsType[*bridge.Error](err); !ok || !errors.Is(err, bridge.ErrUnavailable) || strings.Contains(e.Public, "no-such-program") || !strings.Contains(err.Error(), "install the program") {
			t.Errorf("Open: %v, want one that clients may see without the command line", err)
		}
		if a.Check() == nil {
			t.Error("Check has nothing against it")
		}
	})
}

// stopper ends a handshake when a warning is logged.
type stopper struct{ stop func() }

func (s stopper) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("level=WARN")) {
		s.stop()
	}
	return len(b), nil
}

// The error of a handshake that was not finished has what the server printed in place of messages.
func TestOpenMisprinted(t *testing.T) {
	for mode, want := range map[string]string{
		"indented": "without headers; it printed:\n  {\n",
		"headers":  "without headers; it printed:\n  Content-Length: 37\n",
	} {
		t.Run(mode, func(t *testing.T) {
			quiet(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := stopper{func() {
				cancel(&bridge.Error{Kind: bridge.ErrUnavailable, Public: "it did not finish its handshake within 30s"})
			}}
			_, err := adapter(t, mode, conn.Options{Log: slog.New(slog.NewTextHandler(stop, nil))}).Open(ctx, adaptertest.Caller(""), &adaptertest.Client{})
			if err == nil || !strings.Contains(err.Error(), "it did not finish its handshake within 30s; its standard output has lines that are not MCP messages: ") || !strings.Contains(err.Error()+"\n", want) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("Open: %v, want %q", err, want)
			}
		})
	}
}

// The error of a handshake that a silent server did not finish says that it is silent, and how to wait longer.
func TestOpenSilent(t *testing.T) {
	quiet(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), hasty, &bridge.Error{Kind: bridge.ErrUnavailable, Public: "it did not finish its handshake within 30s"})
	defer cancel()
	_, err := adapter(t, "silent", conn.Options{}).Open(ctx, adaptertest.Caller(""), &adaptertest.Client{})
	want := "it did not finish its handshake within 30s: it has printed nothing; if it is slow to start, allow it more time: handshake_timeout, or --handshake-timeout 3m"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("Open: %v, want %q", err, want)
	}
}

// kill -9 while calls are in flight, and a subscription of a modern server.
func TestKilledChild(t *testing.T) {
	for mode, from := range map[string]*bridge.Caller{"server": adaptertest.Caller(""), "modern server": adaptertest.ModernCaller()} {
		t.Run(mode, func(t *testing.T) {
			quiet(t)
			rest := &adaptertest.Client{}
			up := adaptertest.OpenFor(t, adapter(t, mode, conn.Options{}), from, rest)
			var calls []<-chan adaptertest.Outcome
			for range 50 {
				for _, method := range []string{"m", "subscriptions/listen"} {
					calls = append(calls, adaptertest.Go(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"then":"hang"}}`))
				}
			}
			call(t, up, `{}`).Result(t)
			kill(t, up)
			for _, c := range calls {
				if o := <-c; !errors.Is(o.Err, bridge.ErrLost) || !strings.Contains(o.Err.Error(), "its process has ended (") {
					t.Errorf("a call ended with %q, %v, want that its process has ended", o.Answer, o.Err)
				}
			}
			if err := rest.WaitGone(t); !errors.Is(err, bridge.ErrLost) {
				t.Errorf("Gone(%v), want ErrLost", err)
			}
			if err := up.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if gone := rest.Gones(); len(gone) != 1 {
				t.Errorf("Gone was called %d times", len(gone))
			}
		})
	}
}

func kill(t testing.TB, up bridge.Upstream) {
	t.Helper()
	p, err := os.FindProcess(up.(*child).p.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}

// the write that finds a dead child first must not hide why it died,
// nor be what a client reads. Calls race with the death.
func TestCallsRaceWithTheEnd(t *testing.T) {
	quiet(t)
	for range scaletest.Of(4, 10) {
		rest := &adaptertest.Client{}
		up := adaptertest.Open(t, adapter(t, "server", conn.Options{}), rest)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					m, _ := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`))
					a, err := up.Call(context.Background(), &bridge.Request{Message: m})
					if err == nil {
						a.Release()
						continue
					}
					if e, ok := errors.AsType[*bridge.Error](err); !ok || !errors.Is(err, bridge.ErrLost) || strings.Contains(e.Public, "pipe") {
						t.Errorf("the call ended with %v (%T), want a *bridge.Error that is ErrLost", err, err)
					}
					return
				}
			})
		}
		kill(t, up)
		all.Wait()
		if err := rest.WaitGone(t); !strings.Contains(err.Error(), "its process has ended") {
			t.Errorf("Gone(%v), want that its process has ended", err)
		}
		_ = up.Close(t.Context())
	}
}

// A child that closes its output can answer nothing any more, though it lives.
func TestChildThatClosesItsOutput(t *testing.T) {
	quiet(t)
	rest := &adaptertest.Client{}
	a := adapter(t, "server", conn.Options{})
	up := adaptertest.Open(t, a, rest)
	o := call(t, up, `{"mute":true}`)
	if !errors.Is(o.Err, bridge.ErrLost) || !strings.Contains(o.Err.Error(), "it closed its output") {
		t.Errorf("the call ended with %q, %v", o.Answer, o.Err)
	}
	rest.WaitGone(t)
}

// What comes after the end of a child is surely not sent, although a grandchild
// holds the pipes open; what was in flight still waits for the last lines.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	quiet(t)
	rest := &adaptertest.Client{}
	a := adapter(t, "server", conn.Options{})
	a.c.StopStdin = hasty
	up := adaptertest.Open(t, a, rest)
	under := goCall(t, t.Context(), up, `{"leave":true}`)
	<-up.(*child).p.Exited()
	o := call(t, up, `{}`)
	if e, ok := errors.AsType[*bridge.Error](o.Err); !ok || e.Kind != bridge.ErrUnsent || !errors.Is(o.Err, bridge.ErrLost) || !strings.Contains(e.Public, "its process has ended (exit status 5)") {
		t.Errorf("a call after the end: %q, %v", o.Answer, o.Err)
	}
	_ = up.Close(t.Context()) // as the lane does then; the reader fails the call in flight
	if o := <-under; errors.Is(o.Err, bridge.ErrUnsent) || !errors.Is(o.Err, bridge.ErrLost) || !strings.Contains(o.Err.Error(), "exit status 5") {
		t.Errorf("the call under way: %q, %v", o.Answer, o.Err)
	}
	rest.WaitGone(t)
}

// R-178, D0.11: a child that does not read makes callers wait, and nobody
// else; their contexts free them.
func TestChildThatDoesNotRead(t *testing.T) {
	quiet(t)
	const limit = 1 << 20
	a := adapter(t, "deaf", conn.Options{MaxMessage: limit})
	up := adaptertest.Open(t, a, &adaptertest.Client{})
	healthy := adaptertest.Open(t, adapter(t, "server", conn.Options{MaxMessage: limit}), &adaptertest.Client{})
	text := `{"text":"` + strings.Repeat("x", limit/2) + `"}`
	why := errors.New("no patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	var calls []<-chan adaptertest.Outcome
	for range 20 {
		calls = append(calls, goCall(t, ctx, up, text))
	}
	out := up.(*child).out
	eventually(t, "the queue has no room for another call", func() bool {
		out.mu.Lock()
		defer out.mu.Unlock()
		return out.wait.Bytes() > 2*limit-limit/2
	})
	if got, want := func() int { out.mu.Lock(); defer out.mu.Unlock(); return out.wait.Bytes() }(), 2*limit; got > want {
		t.Errorf("%d bytes in the queue, want at most %d", got, want)
	}
	call(t, healthy, `{}`).Result(t)
	cancel(why)
	for _, c := range calls {
		if o := <-c; !errors.Is(o.Err, why) {
			t.Errorf("the call ended with %q, %v, want %v", o.Answer, o.Err, why)
		}
	}
	if err := up.Close(t.Context()); err != nil { // while a write is in flight
		t.Fatal(err)
	}
}

// a child that pings for ever and reads no answer fills the queue to its
// bound, and is given up.
func TestChildThatOnlyAsks(t *testing.T) {
	quiet(t)
	rest := &adaptertest.Client{}
	a := adapter(t, "deaf and asking", conn.Options{MaxMessage: 64 << 10})
	up := adaptertest.Open(t, a, rest)
	pending := goCall(t, t.Context(), up, `{}`)
	if err := rest.WaitGone(t); !errors.Is(err, bridge.ErrLost) || !errors.Is(err, conn.ErrFull) || !strings.Contains(err.Error(), unreadWhy) {
		t.Errorf("Gone(%v), want that it does not read", err)
	}
	if o := <-pending; !errors.Is(o.Err, bridge.ErrLost) {
		t.Errorf("the call ended with %q, %v", o.Answer, o.Err)
	}
	if err := up.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A caller gets what the child said last, however soon it ends after that.
func TestLastWords(t *testing.T) {
	quiet(t)
	rest := &adaptertest.Client{}
	up := adaptertest.Open(t, adapter(t, "server", conn.Options{}), rest)
	const n = 1000
	var say []string
	for i := range n {
		say = append(say, fmt.Sprintf(`{"jsonrpc":"2.0","method":"n%d","params":{"pad":"%s"}}`, i, strings.Repeat("x", 100)))
	}
	say = append(say, `{"jsonrpc":"2.0","id":"$id","result":{}}`)
	call(t, up, `{"then":"die","say":[`+strings.Join(say, ",")+`]}`).Result(t)
	if said := rest.Said(); len(said) != n {
		t.Errorf("%d notifications before the answer, want %d", len(said), n)
	}
	if err := rest.WaitGone(t); !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("Gone(%v)", err)
	}
}

func init() { children["halves"] = halves }

// halves is the server of adaptertest.Intake.
func halves() {
	rest := ""
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		_ = json.Unmarshal(line, &m)
		first, second := adaptertest.Halves(string(m.ID))
		switch {
		case m.Method == "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`+"\n", m.ID)
		case m.Method == adaptertest.Rest:
			fmt.Println(rest)
		case bytes.Contains(line, []byte("halves")):
			fmt.Print(first)
			rest = second
		case m.Method == "tools/call":
			fmt.Println(first + second)
		}
	}
}

func TestLinesUnderWay(t *testing.T) {
	quiet(t)
	adaptertest.Intake(t, adapter(t, "halves", conn.Options{Era: "legacy"}))
}

// startAhead starts a child before anybody connects, and returns what comes of it.
func startAhead(t *testing.T, ctx context.Context, a *Adapter) (c *child, over <-chan error) {
	t.Helper()
	came := make(chan error, 1)
	go func() { came <- a.StartAhead(ctx, done()) }()
	eventually(t, "the child is there", func() bool { return a.ahead.Load() != nil })
	e := a.ahead.Load()
	<-e.launched
	return e.u, came
}

// The first connection uses the child that was started ahead, and has a handshake of its
// own; the next one has a child of its own, too.
func TestStartAhead(t *testing.T) {
	quiet(t)
	a := adapter(t, "server", conn.Options{})
	u, over := startAhead(t, t.Context(), a)
	from := *adaptertest.Caller("")
	from.Header = http.Header{"TOKEN": {"x"}} // stands in the environment
	for i, c := range []struct {
		from *bridge.Caller
		want bool
	}{{&from, false}, {adaptertest.Caller(""), true}, {adaptertest.Caller(""), false}} {
		up, err := a.Open(t.Context(), c.from, &adaptertest.Client{})
		if err != nil {
			t.Fatal(err)
		}
		call(t, up, `{}`).Result(t)
		if up.(*child).Pid() == u.Pid() != c.want {
			t.Errorf("connection %d: the child that was started ahead is used: %t, want %t", i, !c.want, c.want)
		}
		if err := up.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// Whichever comes first, the first connection and StartAhead start one child together.
func TestStartAheadOnce(t *testing.T) {
	quiet(t)
	for range 10 {
		var log bytes.Buffer
		a := adapter(t, "server", conn.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := a.StartAhead(t.Context(), done()); err != nil {
				t.Error(err)
			}
		})
		up, err := a.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{})
		if err != nil {
			t.Fatal(err)
		}
		if err := up.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if n := strings.Count(log.String(), "child started"); n != 1 {
			t.Errorf("%d children, want one:\n%s", n, log.String())
		}
	}
}

// An unused child is stopped; the end of one that exits by itself has the reason.
func TestStartAheadInVain(t *testing.T) {
	quiet(t)
	ctx, stop := context.WithCancel(t.Context())
	c, over := startAhead(t, ctx, adapter(t, "silent", conn.Options{}))
	stop()
	if err := <-over; err != nil || !c.p.hasExited() {
		t.Errorf("%v, ended: %t", err, c.p.hasExited())
	}
	a := adapter(t, "fails", conn.Options{})
	err := a.StartAhead(t.Context(), done())
	if err == nil || !strings.Contains(err.Error(), "its process has ended (exit status 3)") || !strings.HasSuffix(err.Error(), "\n  set FOO_KEY") {
		t.Errorf("StartAhead: %v, want the state and its stderr", err)
	}
	if _, again := a.Open(t.Context(), adaptertest.Caller(""), &adaptertest.Client{}); bridge.Brief(again) != bridge.Brief(err) {
		t.Errorf("Open: %v, want what was said before, which the log does not repeat", again)
	}
}

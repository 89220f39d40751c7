package stdio

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

func init() { children["script"] = serveScript }

// part is what one child does. Answers are members of a message: `"result":{}`.
// An empty one is silence.
type part struct {
	Noise      string // printed first
	Hold       string // a named pipe: nothing is read from stdin before that ends
	Discover   string // the answer to server/discover; "exit" ends the child, and "mute" is silence from then on
	Initialize string // the answer to initialize, or "exit"
	Exit       bool   // after the answer to initialize
	// Late is the method whose message has to come before server/discover is
	// answered. An answer to that message goes first if it is First.
	Late  string
	First bool
}

const (
	scriptVariable  = "BRIDGE_TEST_SCRIPT"  // JSON of the parts, one for each child; the last one is for all that follow
	journalVariable = "BRIDGE_TEST_JOURNAL" // a file: what the children have received
)

// What servers answer.
const (
	isModern = `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"x":{"n":1.50}},"ttlMs":0,"cacheScope":"private"}`
	isLegacy = `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
	noMethod = `"error":{"code":-32601,"message":"method not found"}`
	tooOld   = `"error":{"code":-32022,"message":"unsupported","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}`
)

func serveScript() {
	var parts []part
	if err := json.Unmarshal([]byte(os.Getenv(scriptVariable)), &parts); err != nil {
		panic(err)
	}
	journal, err := os.OpenFile(os.Getenv(journalVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	note := func(what string) { fmt.Fprintln(journal, what) }
	note("start")
	before, _ := os.ReadFile(journal.Name())
	p := parts[min(strings.Count(string(before), "start"), len(parts))-1]
	fmt.Print(p.Noise)
	if p.Hold != "" {
		_, _ = os.ReadFile(p.Hold)
	}
	var asked json.RawMessage // the id of server/discover, while it waits for its answer
	say := func(id json.RawMessage, answer string) {
		if answer == "exit" {
			os.Exit(3)
		}
		if answer != "" {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,%s}`+"\n", id, answer)
		}
	}
	mute := false
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ ProtocolVersion string }
		}
		if err := json.Unmarshal(line, &m); err != nil {
			panic(err)
		}
		switch {
		case m.Method == "":
			m.Method = "answer"
		case m.Method == "initialize":
			m.Method += "(" + m.Params.ProtocolVersion + ")"
		}
		note(m.Method)
		late := func() {
			if asked != nil && strings.HasPrefix(m.Method, p.Late) {
				say(asked, p.Discover)
				asked = nil
			}
		}
		if !p.First {
			late()
		}
		name, _, _ := strings.Cut(m.Method, "(")
		switch {
		case mute:
		case name == "server/discover" && p.Discover == "mute":
			mute = true
		case name == "server/discover" && p.Late != "":
			asked = m.ID
		case name == "server/discover":
			say(m.ID, p.Discover)
		case name == "initialize":
			say(m.ID, p.Initialize)
			if p.Exit {
				os.Exit(3)
			}
		case m.ID != nil && name != "answer":
			say(m.ID, `"result":{}`)
		}
		if p.First {
			late()
		}
	}
}

// scripted is an adapter to servers that play the parts, and how to read what
// they have received.
func scripted(t *testing.T, o conn.Options, parts ...part) (*Adapter, func() string) {
	t.Helper()
	a := adapter(t, "script", o)
	a.c.StopStdin = time.Hour // they end with their stdin, and their journal is complete
	script, err := json.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(t.TempDir(), "journal")
	a.c.Env[scriptVariable], a.c.Env[journalVariable] = string(script), journal
	return a, func() string {
		t.Helper()
		b, err := os.ReadFile(journal)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(journal, 0); err != nil {
			t.Fatal(err)
		}
		// What is counted is the starts of all openings.
		for range strings.Count(string(b), "start") {
			parts = parts[min(1, len(parts)-1):]
		}
		script, _ := json.Marshal(parts)
		a.c.Env[scriptVariable] = string(script)
		return strings.Join(strings.Fields(string(b)), " ")
	}
}

// opened opens a connection, makes a call, closes it, and says what that came
// to: the era, or the error.
func opened(t *testing.T, a *Adapter, from *bridge.Caller) (string, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context()) // which is of Open only
	defer cancel()
	rest := &adaptertest.Client{}
	up, err := a.Open(ctx, from, rest)
	if err != nil {
		rest.NoGone(t)
		return "", err
	}
	defer up.Close(context.Background())
	adaptertest.Call(t.Context(), t, up, nil, `{"jsonrpc":"2.0","id":1,"method":"test/call"}`).Result(t)
	if up.Server().Modern() {
		return "modern", nil
	}
	return "legacy", nil
}

// The result of opening a connection to a server, and the requests that the server gets.
const (
	asModern  = "start server/discover test/call"
	asLegacy  = "start initialize(2025-11-25) notifications/initialized test/call"
	fallsBack = "start server/discover initialize(2025-11-25) notifications/initialized test/call"
	isRefused = "start initialize(2025-11-25) server/discover test/call"
)

// C1, R-105, R-106, R-109: every answer to a probe, and what it makes of the
// next opening.
func TestEras(t *testing.T) {
	supported := func(list string) string {
		return `"error":{"code":-32022,"message":"unsupported","data":{"supported":[` + list + `],"requested":"2026-07-28"}}`
	}
	for i, c := range []struct {
		name    string
		modern  bool // the caller is of the modern era
		o       conn.Options
		parts   []part
		want    string // the era
		fails   string // or what the error says
		journal string
		next    string // the journal of a second opening; empty if there is none to be looked at
	}{
		{name: "modern", modern: true, parts: []part{{Discover: isModern, Initialize: tooOld}}, want: "modern", journal: asModern, next: asModern},
		{name: "modern, noise before it", modern: true, parts: []part{{Noise: "Listening\n{}\n", Discover: isModern, Initialize: tooOld}}, want: "modern", journal: asModern},
		{name: "-32601", modern: true, parts: []part{{Discover: noMethod, Initialize: isLegacy}}, want: "legacy", journal: fallsBack, next: asLegacy},
		{name: "-32602", modern: true, parts: []part{{Discover: `"error":{"code":-32602,"message":"Invalid request parameters","data":""}`, Initialize: isLegacy}}, want: "legacy", journal: fallsBack, next: asLegacy},
		{name: "-32021", modern: true, parts: []part{{Discover: `"error":{"code":-32021,"message":"m"}`, Initialize: isLegacy}}, want: "legacy", journal: fallsBack},
		{name: "a code of its own", modern: true, parts: []part{{Discover: `"error":{"code":-32000,"message":"Server not initialized"}`, Initialize: isLegacy}}, want: "legacy", journal: fallsBack},
		{name: "some result", modern: true, parts: []part{{Discover: `"result":{"ok":true}`, Initialize: isLegacy}}, want: "legacy", journal: fallsBack},
		{name: "an answer that is no message", modern: true, parts: []part{{Discover: `"result":{},"error":{}`, Initialize: isLegacy}}, want: "legacy", journal: fallsBack},
		{name: "-32022, legacy revisions", modern: true, parts: []part{{Discover: supported(`"2025-11-25","2025-06-18"`), Initialize: isLegacy}}, want: "legacy", journal: fallsBack, next: asLegacy},
		{name: "result, legacy revisions", modern: true, parts: []part{{Discover: `"result":{"supportedVersions":["2025-11-25"],"capabilities":{}}`, Initialize: isLegacy}}, want: "legacy", journal: fallsBack},
		{name: "-32022, other modern revisions", modern: true, parts: []part{{Discover: supported(`"2027-01-01"`), Initialize: isLegacy}}, fails: `"2027-01-01"`, journal: "start server/discover", next: "start server/discover"},
		{name: "result, other modern revisions", modern: true, parts: []part{{Discover: `"result":{"supportedVersions":["2027-01-01","2028-01-01"],"capabilities":{}}`, Initialize: isLegacy}}, fails: `"2027-01-01", "2028-01-01"`, journal: "start server/discover"},
		{name: "neither era", modern: true, parts: []part{{Discover: noMethod, Initialize: noMethod}}, fails: "it refused to initialize: method not found", journal: "start server/discover initialize(2025-11-25)"},
		{name: "exits", modern: true, parts: []part{{Discover: "exit", Initialize: isLegacy}}, want: "legacy", journal: "start server/discover " + asLegacy, next: asLegacy},
		{name: "exits whatever comes", modern: true, parts: []part{{Discover: "exit", Initialize: "exit"}}, fails: "its process has ended (exit status 3)", journal: "start server/discover start initialize(2025-11-25)"},

		{name: "legacy caller", parts: []part{{Discover: isModern, Initialize: isLegacy}}, want: "legacy", journal: asLegacy, next: asLegacy},
		{name: "legacy caller, modern server", parts: []part{{Discover: isModern, Initialize: tooOld}}, want: "modern", journal: isRefused, next: asModern},
		{name: "legacy caller, initialize answered with a modern revision", parts: []part{{Discover: isModern, Initialize: `"result":{"protocolVersion":"2026-07-28","capabilities":{}}`}}, want: "modern", journal: isRefused, next: asModern},
		{name: "legacy caller, modern server that exits", parts: []part{{Discover: isModern, Initialize: tooOld, Exit: true}}, want: "modern", journal: "start initialize(2025-11-25) start server/discover test/call", next: asModern},
		{name: "legacy caller, neither era", parts: []part{{Discover: noMethod, Initialize: `"error":{"code":-32000,"message":"no licence"}`}}, fails: "it refused to initialize: no licence", journal: "start initialize(2025-11-25) server/discover", next: "start initialize(2025-11-25) server/discover"},
		{name: "legacy caller, refused and exits", parts: []part{{Discover: "exit", Initialize: tooOld}}, fails: "it refused to initialize: unsupported", journal: "start initialize(2025-11-25) server/discover start server/discover"},
		{name: "legacy caller, refused, other modern revisions", parts: []part{{Discover: supported(`"2027-01-01"`), Initialize: noMethod}}, fails: `"2027-01-01"`, journal: "start initialize(2025-11-25) server/discover"},
		{name: "legacy caller, exits", parts: []part{{Discover: isModern, Initialize: "exit"}}, fails: "its process has ended (exit status 3)", journal: "start initialize(2025-11-25)"},

		{name: "pinned to modern", o: conn.Options{Era: conn.EraModern}, parts: []part{{Discover: isModern, Initialize: isLegacy}}, want: "modern", journal: asModern, next: asModern},
		{name: "pinned to modern, legacy server", modern: true, o: conn.Options{Era: conn.EraModern}, parts: []part{{Discover: noMethod, Initialize: isLegacy}}, fails: "does not speak the modern era", journal: "start server/discover"},
		{name: "pinned to modern, exits", modern: true, o: conn.Options{Era: conn.EraModern}, parts: []part{{Discover: "exit", Initialize: isLegacy}}, fails: "its process has ended (exit status 3)", journal: "start server/discover"},
		{name: "pinned to legacy", modern: true, o: conn.Options{Era: conn.EraLegacy}, parts: []part{{Discover: isModern, Initialize: isLegacy}}, want: "legacy", journal: asLegacy, next: asLegacy},
		{name: "pinned to legacy, modern server", o: conn.Options{Era: conn.EraLegacy}, parts: []part{{Discover: isModern, Initialize: tooOld}}, fails: "it refused to initialize: unsupported", journal: "start initialize(2025-11-25)"},
		{name: "capped", o: conn.Options{Revision: "2025-03-26"}, parts: []part{{Discover: isModern, Initialize: isLegacy}}, want: "legacy", journal: strings.Replace(asLegacy, "2025-11-25", "2025-03-26", 1)},
		{name: "capped, after a probe", modern: true, o: conn.Options{Revision: "2025-03-26"}, parts: []part{{Discover: noMethod, Initialize: isLegacy}}, want: "legacy", journal: strings.Replace(fallsBack, "2025-11-25", "2025-03-26", 1)},
		{name: "capped higher than the client", o: conn.Options{Revision: "2026-07-28"}, parts: []part{{Discover: isModern, Initialize: isLegacy}}, want: "legacy", journal: asLegacy},

		{name: "cached as legacy, now modern", modern: true, parts: []part{{Discover: noMethod, Initialize: isLegacy}, {Discover: isModern, Initialize: tooOld}}, want: "legacy", journal: fallsBack, next: isRefused},
		{name: "cached as legacy, now modern and given to exits", modern: true, parts: []part{{Discover: noMethod, Initialize: isLegacy}, {Discover: isModern, Initialize: "exit"}}, want: "legacy", journal: fallsBack, next: "start initialize(2025-11-25) " + asModern},
		{name: "cached as modern, now legacy", modern: true, parts: []part{{Discover: isModern, Initialize: tooOld}, {Discover: noMethod, Initialize: isLegacy}}, want: "modern", journal: asModern, next: fallsBack},
		{name: "legacy caller, cached as modern, now legacy", parts: []part{{Discover: isModern, Initialize: tooOld}, {Discover: noMethod, Initialize: isLegacy}}, want: "modern", journal: isRefused, next: fallsBack},
	} {
		if i%scaletest.Alone(3, 1) > 0 { // each starts up to four children, and what they race for is the same
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			quiet(t)
			var log adaptertest.Log
			c.o.Log = log.Logger()
			a, journal := scripted(t, c.o, c.parts...)
			from := adaptertest.Caller("")
			if c.modern {
				from = adaptertest.ModernCaller()
			}
			got, err := opened(t, a, from)
			switch {
			case c.fails == "" && err != nil:
				t.Errorf("Open: %v", err)
			case c.fails != "" && (!errors.Is(err, bridge.ErrUnavailable) || !strings.Contains(err.Error(), c.fails)):
				t.Errorf("Open: %v, want ErrUnavailable with %q", err, c.fails)
			case got != c.want:
				t.Errorf("the connection is %s, want %s", got, c.want)
			}
			if got := journal(); got != c.journal {
				t.Errorf("the server has received %q\nwant                    %q", got, c.journal)
			}
			for line := range strings.Lines(log.String()) {
				if !strings.Contains(line, "level=DEBUG") && !strings.Contains(line, "ignored lines") && !strings.Contains(line, `msg="child `) {
					t.Errorf("logged as more than a detail: %s", line)
				}
			}
			if c.next == "" {
				return
			}
			if _, err := opened(t, a, from); err != nil && c.fails == "" {
				t.Errorf("the second Open: %v", err)
			}
			if got := journal(); got != c.next {
				t.Errorf("the second time it has received %q\nwant                            %q", got, c.next)
			}
		})
	}
}

// That a modern server ends is no sign that it is another, the first time.
func TestModernServerCrashes(t *testing.T) {
	quiet(t)
	modern, crash := part{Discover: isModern, Initialize: isLegacy}, part{Discover: "exit", Initialize: isLegacy}
	a, journal := scripted(t, conn.Options{}, modern, crash, modern, crash, crash)
	for i, want := range []struct{ era, journal string }{
		{"modern", asModern},
		{"", "start server/discover"},
		{"modern", asModern},
		{"", "start server/discover"},
		{"legacy", "start server/discover " + asLegacy},
		{"legacy", asLegacy},
	} {
		got, err := opened(t, a, adaptertest.ModernCaller())
		if got != want.era || (err != nil) != (want.era == "") {
			t.Errorf("opening %d: %q, %v, want %q", i, got, err, want.era)
		}
		if err != nil && (!errors.Is(err, bridge.ErrUnavailable) || !strings.Contains(err.Error(), "exit status 3")) {
			t.Errorf("opening %d: %v", i, err)
		}
		if got := journal(); got != want.journal {
			t.Errorf("opening %d: the server has received %q, want %q", i, got, want.journal)
		}
	}
}

// seen is a log that does something, in the goroutine that logs, when a message has this text.
type seen struct {
	text string
	do   func()
}

func (s seen) Enabled(context.Context, slog.Level) bool { return true }
func (s seen) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s seen) WithGroup(string) slog.Handler            { return s }
func (s seen) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, s.text) {
		s.do()
	}
	return nil
}

// C1: the bridge starts a server again that stays silent after server/discover. If the second child refuses initialize, the
// server is a slow modern one, and the child gets server/discover again, at each start. A legacy server is not asked again.
func TestSilentServer(t *testing.T) {
	for _, c := range []struct {
		name    string
		second  part
		want    string
		fails   string
		journal string
		next    string // the journal of a second opening; empty if there is none
	}{
		{"legacy", part{Discover: "mute", Initialize: isLegacy}, "legacy", "", "notifications/initialized test/call", asLegacy},
		{"modern", part{Discover: isModern, Initialize: tooOld}, "modern", "", "server/discover test/call", ""},
		{"neither era", part{Discover: noMethod, Initialize: tooOld}, "", "it refused to initialize: unsupported", "server/discover", ""},
		{"modern revisions that we do not know", part{Discover: `"error":{"code":-32022,"message":"m","data":{"supported":["2027-01-01"]}}`, Initialize: tooOld}, "", `"2027-01-01"`, "server/discover", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			quiet(t)
			var a *Adapter
			var journal func() string
			second := slog.New(seen{"trying initialize with another child", func() { a.silence = time.Hour }}) // which may be slow now
			a, journal = scripted(t, conn.Options{Log: second}, part{Discover: "mute"}, c.second)
			a.silence = 100 * time.Millisecond
			got, err := opened(t, a, adaptertest.ModernCaller())
			if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("the connection is %q, %v, want %q, %s", got, err, c.want, c.fails)
			}
			if got, want := journal(), "start server/discover initialize(2025-11-25) notifications/cancelled start initialize(2025-11-25) "+c.journal; got != want {
				t.Errorf("the server has received %q\nwant                    %q", got, want)
			}
			if c.next == "" {
				return
			}
			if _, err := opened(t, a, adaptertest.ModernCaller()); err != nil {
				t.Error(err)
			}
			if got := journal(); got != c.next {
				t.Errorf("the second time it has received %q, want %q", got, c.next)
			}
		})
	}
}

// C1: a child that reads at once and answers late gets initialize too, and the
// first valid answer decides.
func TestFirstAnswerDecides(t *testing.T) {
	quiet(t)
	const both = "start server/discover initialize(2025-11-25) "
	for _, c := range []struct {
		name    string
		part    part
		want    string
		journal string
	}{
		{"discover first", part{Discover: isModern, Initialize: isLegacy, Late: "initialize"}, "modern", both + "test/call"},
		{"discover alone", part{Discover: isModern, Late: "initialize"}, "modern", both + "test/call"},
		{"discover after a refusal", part{Discover: isModern, Initialize: tooOld, Late: "initialize", First: true}, "modern", both + "test/call"},
		{"discover in vain", part{Discover: noMethod, Initialize: isLegacy, Late: "initialize"}, "legacy", both + "notifications/initialized test/call"},
		{"discover too late", part{Discover: isModern, Initialize: isLegacy, Late: "notifications/cancelled"}, "legacy", both + "notifications/initialized notifications/cancelled test/call"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, journal := scripted(t, conn.Options{}, c.part)
			a.silence = 5 * time.Second // also how soon it has to answer to initialize
			if got, err := opened(t, a, adaptertest.ModernCaller()); got != c.want || err != nil {
				t.Errorf("the connection is %q, %v, want %q", got, err, c.want)
			}
			got := journal()
			if c.want == "modern" { // initialize may have been answered in the same breath
				got = strings.Replace(got, "notifications/initialized ", "", 1)
			}
			if got != c.journal {
				t.Errorf("the server has received %q\nwant                    %q", got, c.journal)
			}
		})
	}
}

// A server that has refused initialize is not waited for when it says nothing
// to server/discover.
func TestRefusedAndSilent(t *testing.T) {
	quiet(t)
	a, _ := scripted(t, conn.Options{}, part{Discover: "mute", Initialize: tooOld})
	a.silence = 100 * time.Millisecond
	_, err := opened(t, a, adaptertest.Caller(""))
	if !errors.Is(err, bridge.ErrNoHandshake) || !strings.Contains(err.Error(), "it refused to initialize") {
		t.Errorf("Open: %v, want that it refused to initialize", err)
	}
}

// Whatever an opening waits for, its context ends it, with all children.
func TestOpeningIsGivenUp(t *testing.T) {
	why := errors.New("no patience")
	for _, c := range []struct {
		name string
		part part
		o    conn.Options
		when string // in the journal, when the context ends
	}{
		{"server/discover", part{Late: "never"}, conn.Options{}, "server/discover"},
		{"server/discover, pinned", part{Late: "never"}, conn.Options{Era: conn.EraModern}, "server/discover"},
		{"both", part{Late: "never"}, conn.Options{}, "initialize"},
		{"initialize after an error", part{Discover: noMethod}, conn.Options{}, "initialize"},
		{"initialize of the second child", part{Discover: "exit"}, conn.Options{}, "initialize"},
		{"initialize of the second child, after silence", part{Discover: "mute"}, conn.Options{}, "cancelled start initialize"},
	} {
		t.Run(c.name, func(t *testing.T) {
			quiet(t)
			a, _ := scripted(t, c.o, c.part)
			if a.silence = time.Hour; strings.Contains(c.when, "initialize") {
				a.silence = 200 * time.Millisecond
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := a.Open(ctx, adaptertest.ModernCaller(), &adaptertest.Client{})
				failed <- err
			}()
			eventually(t, c.when, func() bool {
				b, _ := os.ReadFile(a.c.Env[journalVariable])
				return strings.Contains(strings.Join(strings.Fields(string(b)), " "), c.when)
			})
			cancel(why)
			if err := <-failed; !errors.Is(err, why) {
				t.Errorf("Open: %v, want %v", err, why)
			}
		})
	}
	t.Run("before it begins", func(t *testing.T) {
		quiet(t)
		a, _ := scripted(t, conn.Options{}, part{Discover: isModern})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if _, err := a.Open(ctx, adaptertest.ModernCaller(), &adaptertest.Client{}); !errors.Is(err, why) {
			t.Errorf("Open: %v, want %v", err, why)
		}
	})
}

package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// visitor is a client without a session.
type visitor struct {
	server    string // empty means the only one
	principal string
	caps      string
	meta      string // further members of _meta, each with a comma before it
	mode      ToolsMode
}

const ableVisitor = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`

// visiting is one request of such a client.
type visiting struct {
	stream
	cancel context.CancelCauseFunc
	done   chan struct{}
	answer string
	err    error
}

// ask makes a request in a goroutine. params are without braces.
func (v visitor) ask(t testing.TB, g *gateway, id, method, params string) *visiting {
	t.Helper()
	if params != "" {
		params += ","
	}
	if v.caps == "" {
		v.caps = ableVisitor
	}
	m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":{`+params+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+v.caps+v.meta+`}}}`)
	one := &visiting{done: make(chan struct{})}
	var ctx context.Context
	ctx, one.cancel = context.WithCancelCause(context.Background())
	s, no := NewStateless(v.server, v.principal, m)
	if no != nil {
		one.answer = bridgetest.Text(no)
		close(one.done)
		return one
	}
	s.Back, s.Tools = &one.stream, v.mode
	go func() {
		defer close(one.done)
		defer one.cancel(nil)
		a, err := g.Call(ctx, m, *s)
		one.answer, one.err = bridgetest.Text(a), err
		one.close() // nothing may come behind the answer
	}()
	return one
}

// over reports whether the request has its answer, when all is quiet.
func (v *visiting) over() bool {
	synctest.Wait()
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}

// call makes a request and waits for its answer.
func (v visitor) call(t testing.TB, g *gateway, method, params string) string {
	t.Helper()
	visiting := v.ask(t, g, "1", method, params)
	<-visiting.done
	return visiting.answer
}

var statePattern = regexp.MustCompile(`"requestState":"([^"]*)"`)

// stateOf returns the requestState in an answer.
func stateOf(t testing.TB, answer string) string {
	t.Helper()
	found := statePattern.FindStringSubmatch(answer)
	if found == nil {
		t.Fatalf("no requestState in %s", answer)
	}
	return found[1]
}

// TestLowerDialogues plays testdata/lower: conversations of clients without
// sessions with a legacy server. A file has a comment and these sections, in the
// order in which they happen:
//
//	-- NAME: METHOD --      a request: its params without _meta, or nothing. NAME
//	                        may be followed by words: as P (a principal), with CAPS
//	-- NAME --              what has come to it since last time
//	-- NAME leaves --       it is cancelled
//	-- server --            what the server says, one message a line; "answer
//	                        METHOD JSON" answers the oldest open request of that
//	                        method, "fail METHOD JSON" with an error; "dies"
//	-- server got --        what has come to it since last time, without the handshake
//	-- after DURATION --    time passes
//	-- options --           before all else: share, result (of initialize), or the
//	                        lane that all clients choose
//
// Where a line has … anything may stand. A requestState is written {s1}, {s2} …
// in the order in which they appear.
func TestLowerDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/lower/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				d := &dialogue{t: t, visits: map[string]*visiting{}, told: map[string]bool{}}
				d.play(a.Files)
			})
		})
	}
}

type dialogue struct {
	t      *testing.T
	g      *gateway
	f      *fake
	visits map[string]*visiting
	told   map[string]bool // its answer was looked at
	states []string
	lane   string

	mu   sync.Mutex // guards open, said
	open []*jsonrpc.Message
	said []string
}

func (d *dialogue) play(files []txtar.File) {
	s := ServerOptions{Name: "fake"}
	result := everything
	for len(files) > 0 && files[0].Name == "options" {
		for _, line := range strings.Fields(string(files[0].Data)) {
			name, value, _ := strings.Cut(line, "=")
			switch name {
			case "share":
				s.Share = Share(value)
			case "result":
				result = value
			case "lane":
				d.lane = `,"` + era.KeyLane + `":"` + value + `"`
			default:
				d.t.Fatalf("unknown option %s", name)
			}
		}
		files = files[1:]
	}
	d.f = &fake{result: result, serve: d.serve}
	s.Adapter = d.f
	d.g = newGateway(Options{Servers: []ServerOptions{s}, Log: slog.New(slog.DiscardHandler)})
	for _, f := range files {
		d.step(f.Name, strings.TrimSpace(string(f.Data)))
		synctest.Wait()
	}
	for name, v := range d.visits {
		if rest := d.heard(name, v); rest != "" {
			d.t.Errorf("%s has got besides:\n%s", name, rest)
		}
	}
	d.g.Close(context.Background())
	for _, v := range d.visits {
		v.cancel(bridge.ErrCancelled)
		<-v.done
	}
	if n := d.g.lanes.Open(); n != 0 {
		d.t.Errorf("%d lanes are left", n)
	}
}

func (d *dialogue) serve(_ *fakeWire, m *jsonrpc.Message) bool {
	switch m.Method {
	case "initialize", "notifications/initialized", "ping": // answered, and not shown
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.IsRequest() {
		d.open = append(d.open, m)
	}
	d.said = append(d.said, bridgetest.Text(m))
	return true
}

func (d *dialogue) step(name, body string) {
	d.t.Helper()
	head, method, isRequest := strings.Cut(name, ": ")
	switch {
	case isRequest:
		words := strings.Fields(head)
		v := visitor{meta: d.lane}
		for i := 1; i+1 < len(words); i += 2 {
			switch words[i] {
			case "as":
				v.principal = words[i+1]
			case "with":
				v.caps = words[i+1]
			case "meta":
				v.meta += "," + words[i+1]
			}
		}
		for i, s := range d.states {
			body = strings.ReplaceAll(body, fmt.Sprintf("{s%d}", i+1), s)
		}
		d.visits[words[0]] = v.ask(d.t, d.g, `"`+words[0]+`"`, method, strings.ReplaceAll(body, "\n", " "))
	case name == "server":
		for _, line := range strings.Split(body, "\n") {
			d.say(line)
		}
	case name == "server got":
		d.mu.Lock()
		got := strings.Join(d.said, "\n")
		d.said = nil
		d.mu.Unlock()
		d.compare(name, got, body)
	case strings.HasPrefix(name, "after "):
		wait, err := time.ParseDuration(strings.TrimPrefix(name, "after "))
		if err != nil {
			d.t.Fatal(err)
		}
		time.Sleep(wait)
	case strings.HasSuffix(name, " leaves"):
		d.visits[strings.TrimSuffix(name, " leaves")].cancel(bridge.ErrCancelled)
	default:
		v := d.visits[name]
		if v == nil {
			d.t.Fatalf("nobody is called %q", name)
		}
		d.compare(name, d.heard(name, v), body)
	}
}

func (d *dialogue) say(line string) {
	f := d.f.wire(d.f.opened())
	verb, rest, _ := strings.Cut(line, " ")
	method, payload, _ := strings.Cut(rest, " ")
	member := map[string]string{"answer": "result", "fail": "error"}[verb]
	switch {
	case line == "dies":
		f.die()
	case member != "":
		d.mu.Lock()
		i := slices.IndexFunc(d.open, func(m *jsonrpc.Message) bool { return m.Method == method })
		if i < 0 {
			d.mu.Unlock()
			d.t.Errorf("the server has no open request %s", method)
			return
		}
		id := d.open[i].ID
		d.open = slices.Delete(d.open, i, i+1)
		d.mu.Unlock()
		f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%q:%s}`, id, member, payload))
	default:
		f.say(line)
	}
}

// heard is what has come to a request since last time.
func (d *dialogue) heard(name string, v *visiting) string {
	lines := v.take()
	if v.over() && !d.told[name] {
		d.told[name] = true
		if v.answer != "" {
			lines = append(lines, v.answer)
		}
	}
	text := strings.Join(lines, "\n")
	for _, found := range statePattern.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(d.states, found[1]) {
			d.states = append(d.states, found[1])
		}
	}
	for i, s := range d.states {
		text = strings.ReplaceAll(text, s, fmt.Sprintf("{s%d}", i+1))
	}
	return text
}

func (d *dialogue) compare(what, got, want string) {
	d.t.Helper()
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*")
	if !regexp.MustCompile(`^` + pattern + `$`).MatchString(got) {
		d.t.Errorf("%s:\ngot\n%s\nwant\n%s", what, got, want)
	}
}

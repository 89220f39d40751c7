package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/replay"
)

// Dialogues between a legacy client and a modern server, one for each row of
// protocol.md D2.4. A file has a comment and these sections, in the order in
// which they happen:
//
//	-- discover --         what the server says of itself; without it, silentServer
//	-- client --           lines that the client says; the first is initialize
//	-- client got --       what has come to the client since last time, on all streams
//	-- server --           lines that the server says
//	-- server got --       what has come to the server since last time
//	-- after DURATION --   time passes
//	-- streams break --    those of the calls under way, not the client's other one
//	-- client ends --      the session
//
// What the bridge says of the client stands as {who}, and the ids of
// elicitations that it makes as {e1}, {e2} … in the order of their appearance.
func TestLiftDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/lift/*.txtar")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d dialogues: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				l := &liftDialogue{t: t, f: &statelessFake{discover: silentServer}, names: map[string]string{}}
				g := newGateway(Options{Servers: []ServerOptions{{Name: "fake", Adapter: l.f}}, Log: slog.New(slog.DiscardHandler)})
				defer g.Close(context.Background())
				l.g = g
				for i, f := range a.Files {
					l.play(fmt.Sprintf("%s: section %d (%s)", filepath.Base(file), i+1, f.Name), f.Name, strings.TrimRight(string(f.Data), "\n"))
				}
				if left := l.heard.take(); len(left) > 0 {
					t.Errorf("the client got more:\n%s", strings.Join(left, "\n"))
				}
			})
		})
	}
}

type liftDialogue struct {
	t     *testing.T
	g     *gateway
	f     *statelessFake
	s     *sitting
	heard stream // all that the client gets
	calls []*liftLeg
	names map[string]string
}

// liftLeg is the stream of one call.
type liftLeg struct {
	d      *liftDialogue
	broken bool
}

func (l *liftLeg) Send(e replay.Event) bool { return !l.broken && l.d.heard.Send(e) }

func (l *liftDialogue) play(where, step, text string) {
	switch {
	case step == "discover":
		l.f.discover = text
	case step == "client":
		for line := range strings.Lines(text) {
			l.client(strings.TrimSpace(line))
		}
	case step == "server":
		for line := range strings.Lines(text) {
			l.f.wire(1).say(strings.TrimSpace(line))
		}
	case step == "client got":
		l.compare(where, l.heard.take(), text)
	case step == "server got":
		l.compare(where, l.f.wire(1).take(), text)
	case step == "streams break":
		for _, liftLeg := range l.calls {
			liftLeg.broken = true
		}
	case step == "client ends":
		l.s.End(bridge.ErrEnded)
	case strings.HasPrefix(step, "after "):
		pause, err := time.ParseDuration(step[len("after "):])
		if err != nil {
			l.t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(pause)
	default:
		l.t.Fatalf("%s: what is that?", where)
	}
	synctest.Wait()
}

func (l *liftDialogue) client(line string) {
	m := bridgetest.Parse(l.t, line)
	switch {
	case m.Method == "initialize":
		s, a, err := l.g.initialize(context.Background(), m, SessionOptions{Server: "fake", ID: "id"})
		if err != nil {
			l.t.Fatal(err)
		}
		l.s = s
		s.Attach(&l.heard)
		l.heard.Send(replay.Event{Data: []byte(bridgetest.Text(a))})
	case m.IsRequest():
		one := &liftLeg{d: l}
		l.calls = append(l.calls, one)
		l.s.Enter(m, nil, one).Go(func(m *jsonrpc.Message, _ error) {
			if m != nil {
				l.heard.Send(replay.Event{Data: []byte(bridgetest.Text(m))})
			}
		})
	case m.IsNotification():
		l.s.Notify(m, nil)
	default:
		if err := l.s.Answer(m); err != nil {
			l.t.Errorf("Answer(%s) = %v", line, err)
		}
	}
	synctest.Wait()
}

var madeUp = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

func (l *liftDialogue) compare(where string, got []string, want string) {
	l.t.Helper()
	all := strings.Join(got, "\n")
	if l.s != nil {
		all = strings.ReplaceAll(all, string(l.s.caller.Meta().Members()), "{who}")
	}
	all = madeUp.ReplaceAllStringFunc(all, func(id string) string {
		if l.names[id] == "" {
			l.names[id] = fmt.Sprintf("{e%d}", len(l.names)+1)
		}
		return l.names[id]
	})
	if all != want {
		l.t.Errorf("%s:\ngot\n%s\nwant\n%s", where, all, want)
	}
}

var _ bridge.Stream = (*liftLeg)(nil)

package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
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

// FuzzSession plays a random life: calls, cancellations, questions, answers,
// subscriptions, losses, ends and pauses, of several clients that all use the
// same few ids. Whatever happens, every request has exactly one outcome, no
// client hears what is another's, and nothing is left in the end.
func FuzzSession(f *testing.F) {
	for mode := range byte(4) {
		for seed := range byte(4) {
			life := []byte{mode}
			for i := range byte(120) {
				life = append(life, (i*7+seed*31)^(i*i), i*13+seed)
			}
			f.Add(life)
		}
	}
	f.Fuzz(func(t *testing.T, life []byte) {
		if len(life) == 0 || len(life) > 1000 {
			return
		}
		synctest.Test(t, func(t *testing.T) { play(t, life) })
	})
}

// player is one client of the random life.
type player struct {
	s    *sitting
	name string // who it is to the server: nobody else may hear what bears it
	st   *stream
}

type game struct {
	t       *testing.T
	g       *gateway
	f       *fake
	share   Share
	players []*player
	calls   sync.WaitGroup
	made    int

	mu   sync.Mutex // guards slow
	slow []slowCall
}

// slowCall is a request that the server has not answered yet.
type slowCall struct {
	w *fakeWire
	m *jsonrpc.Message
}

func play(t *testing.T, life []byte) {
	g := &game{t: t, share: []Share{ShareSession, SharePrincipal, ShareCall, ShareAll}[life[0]%4]}
	g.f = &fake{times: conn.Timeouts{Idle: time.Minute, Max: 10 * time.Minute}, serve: g.serve}
	g.g = newGateway(Options{Log: slog.New(slog.DiscardHandler), Servers: []ServerOptions{{Name: "fake", Adapter: g.f, ServerSettings: ServerSettings{Share: g.share, StartsPerMinute: 100}, Idle: 30 * time.Second, EndWithServer: life[0]&64 != 0}}})
	for i := range 4 {
		g.join(i)
	}
	for i := 1; i+1 < len(life); i += 2 {
		g.step(life[i], life[i+1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	g.g.Close(ctx)
	g.calls.Wait()
	for i := range g.players {
		g.heard(i)
	}
	if n := g.g.lanes.Open(); n != 0 || len(g.g.sessions) != 0 {
		t.Errorf("%d lanes and %d sessions are left", n, len(g.g.sessions))
	}
}

// join starts the session of player i anew.
func (g *game) join(i int) {
	principal := fmt.Sprint("p", i%2)
	p := &player{st: &stream{}}
	g.made++
	switch g.share {
	case ShareSession, ShareCall:
		p.name = fmt.Sprint("c", g.made)
	case SharePrincipal:
		p.name = principal
	}
	s, a, err := initialize(g.t, g.g, principal, `{"protocolVersion":"2025-11-25","capabilities":{"roots":{},"x":"`+p.name+`"},"clientInfo":{"name":"c","version":"1"}}`)
	if (s == nil) != (err != nil) || a == "" {
		g.t.Errorf("Initialize = %v, %s, %v", s, a, err)
	}
	if p.s = s; s != nil {
		s.Attach(p.st)
	}
	if i < len(g.players) {
		g.heard(i)
		g.players[i] = p
	} else {
		g.players = append(g.players, p)
	}
}

var bears = regexp.MustCompile(`"of":"([^"]*)"`)

// heard checks that the player's own stream bore nobody else's name.
func (g *game) heard(i int) {
	p := g.players[i]
	for _, line := range p.st.take() {
		if m := bears.FindStringSubmatch(line); m != nil && m[1] != p.name {
			g.t.Errorf("%s got what is %s's: %s", p.name, m[1], line)
		}
	}
}

// serve is the server: it keeps calls for later.
func (g *game) serve(f *fakeWire, m *jsonrpc.Message) bool {
	if m.Method != "tools/call" {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slow = append(g.slow, slowCall{f, m})
	return true
}

func (g *game) step(what, how byte) {
	i := int(how) % len(g.players)
	p := g.players[i]
	id := []string{`1`, `"1"`, `2`}[int(how/4)%3]
	if p.s == nil || p.s.ctx.Err() != nil {
		if what%2 == 0 {
			g.join(i)
		}
		return
	}
	switch what % 12 {
	case 0, 1, 2:
		g.call(p, id)
	case 3:
		p.s.Notify(bridgetest.Parse(g.t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`), nil)
	case 4: // the server says things about its oldest call, and answers it
		g.mu.Lock()
		if len(g.slow) > 0 {
			s := g.slow[0]
			g.slow = g.slow[1:]
			s.w.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"for":%s}}`, s.m.Token(), s.m.Params))
			s.w.answer(s.m, fmt.Sprintf(`{"for":%s}`, s.m.Params))
		}
		g.mu.Unlock()
	case 5:
		if f := g.wire(how); f != nil {
			f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"roots/list","params":{"of":"%s"}}`, id, name(f)))
		}
	case 6:
		_ = p.s.Answer(bridgetest.Parse(g.t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, how%5)))
	case 7:
		if f := g.wire(how); f != nil {
			f.die()
		}
	case 8:
		p.s.End(bridge.ErrEnded)
	case 9:
		time.Sleep(time.Duration(how) * time.Second)
	case 10:
		method := []string{"resources/subscribe", "resources/unsubscribe", "logging/setLevel"}[int(how/4)%3]
		g.calls.Go(func() {
			m := bridgetest.Parse(g.t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"uri":"a:","level":"info"}}`, id, method))
			a, err := p.s.Call(m, nil, nil)
			if a == nil && !errors.Is(err, bridge.ErrCancelled) || a != nil && !strings.Contains(bridgetest.Text(a), `"id":`+id+`,`) {
				g.t.Errorf("%s = %s, %v", method, bridgetest.Text(a), err)
			}
		})
	case 11:
		p.s.Notify(bridgetest.Parse(g.t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`), nil)
		if f := g.wire(how); f != nil {
			f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","of":"` + name(f) + `"}}`)
		}
	}
	if how%8 < 5 {
		synctest.Wait()
	}
}

// name returns whose connection it is.
func name(f *fakeWire) string {
	_, after, _ := strings.Cut(string(f.from.Capabilities), `"x":"`)
	of, _, _ := strings.Cut(after, `"`)
	return of
}

func (g *game) wire(how byte) *fakeWire {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	if len(g.f.wires) == 0 {
		return nil
	}
	last := len(g.f.wires) - 1
	return g.f.wires[last-int(how)%min(len(g.f.wires), 4)]
}

// call makes a call that bears its own number, and checks its one outcome.
func (g *game) call(p *player, id string) {
	g.made++
	mark := fmt.Sprintf(`"mark":%d,`, g.made)
	m := bridgetest.Parse(g.t, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{`+mark+`"_meta":{"progressToken":`+id+`}}}`)
	back := &stream{}
	g.calls.Go(func() {
		a, err := p.s.Call(m, nil, back)
		got := bridgetest.Text(a)
		switch {
		case a == nil && !errors.Is(err, bridge.ErrCancelled), a != nil && !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":`+id+`,`):
			g.t.Errorf("Call = %s, %v", got, err)
		case err == nil && !strings.Contains(got, mark):
			g.t.Errorf("the answer %s is not of the call %s", got, mark)
		}
		a.Release()
		back.mu.Lock()
		defer back.mu.Unlock()
		for _, line := range back.lines {
			if strings.Contains(line, "progress") && (!strings.Contains(line, mark) || !strings.Contains(line, `"progressToken":`+id+`,`)) {
				g.t.Errorf("the progress %s is not of the call %s under %s", line, mark, id)
			}
			if of := bears.FindStringSubmatch(line); of != nil && of[1] != p.name {
				g.t.Errorf("%s got what is %s's: %s", p.name, of[1], line)
			}
		}
	})
}

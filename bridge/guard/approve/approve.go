// Package approve asks a person before a call of a tool that the operator names.
//
// The wrapper stands in the server's era, and asks as the server would: during the call of a legacy server, and with the
// answer input_required in place of a modern server. So the translations bring the question to every client. The wrapper
// stands below all that changes names and arguments, so the person decides about the call that the server gets.
//
// Without a yes, no call reaches the server: the end of the time, a client that left, and a restart of the bridge are a
// no.
package approve

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/listing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/seal"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// Server is what the Approvals of a server need.
type Server struct {
	Name  string
	Log   *slog.Logger
	Seals *seal.Key // seals the state of questions that answer calls of a modern server
	Queue *Queue    // of calls that wait for an operator
}

// Approvals are the approvals for calls of one server's tools.
type Approvals struct {
	s          Server
	o          atomic.Pointer[Options]
	tools      *listing.Finder[tool]
	remembered *lru.Cache[permit, digest]
	spent      *lru.Cache[string, struct{}] // states that were used: each counts once
}

// tool is what a server's list says about a tool.
type tool struct {
	annotations string // raw JSON
	definition  digest
}

type digest [sha256.Size]byte

// permit is what a person allowed for the rest of a session.
type permit struct{ principal, session, tool string }

// These constants bound what one server's Approvals remember.
const (
	maxRemembered = 10_000
	maxSpent      = 10_000
)

// New returns the Approvals of a server, without rules.
func New(s Server) *Approvals {
	a := &Approvals{
		s:          s,
		tools:      listing.New(read),
		remembered: bounded[permit, digest](maxRemembered),
		spent:      bounded[string, struct{}](maxSpent),
	}
	a.o.Store(&Options{})
	return a
}

func bounded[K comparable, V any](most int) *lru.Cache[K, V] {
	c, err := lru.New[K, V](most)
	if err != nil {
		panic(err) // most is above zero
	}
	return c
}

func read(t gjson.Result) tool {
	return tool{strings.Clone(t.Get("annotations").Raw), sha256.Sum256([]byte(t.Raw))}
}

// Set replaces the options for the next calls.
func (a *Approvals) Set(o Options) {
	o.Rules = slices.Clone(o.Rules)
	for i := range o.Rules {
		setting.Fill(&o.Rules[i])
	}
	a.o.Store(&o)
}

// Wrap returns an Upstream whose calls are approved. up lists the tools with the server's own names, preferably from a
// cache.
func (a *Approvals) Wrap(up bridge.Upstream) bridge.Upstream { return &approved{up, a} }

type approved struct {
	bridge.Upstream
	a *Approvals
}

// Call makes a call of a tool when a person has allowed it, if a rule names the tool.
func (a *approved) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	o := a.a.o.Load()
	if r.Method != "tools/call" || len(o.Rules) == 0 {
		return a.Upstream.Call(ctx, r)
	}
	c := &call{approved: a, r: r, params: r.Whole(), modern: isModern(a.Upstream, r)}
	c.args, c.clear = arguments.Of(c.params)
	if c.modern {
		c.state = c.open()
	}
	c.rule = o.of(r.Name(), func() bool {
		t, _ := c.listed(ctx)
		return o.destroys(r.Name(), t.annotations)
	})
	if c.rule == nil {
		return c.pass(ctx)
	}
	if !c.clear || r.Doubtful() { // the server could read other arguments than the person
		return jsonrpc.InvalidParams("params must not have name or arguments twice, or a member that differs from them in case only"), nil
	}
	return c.decide(ctx)
}

// isModern reports the era of a request's server. The request is in that era, which counts if each call has a connection of
// its own that is not open yet.
func isModern(up bridge.Upstream, r *bridge.Request) bool {
	if g := up.Server(); g != nil {
		return g.Modern()
	}
	return era.SaysVersion(r.Meta())
}

// call is a call of a tool that a rule names.
type call struct {
	*approved
	r      *bridge.Request
	params []byte // with all edits: as the server gets them
	args   []byte // a part of params; nil for none
	clear  bool   // params have arguments once
	modern bool   // the era of the server
	rule   *Rule
	state  *state // of an earlier answer to this call; nil without one, or if it is not valid
	asked  digest // the tool's definition when the person was asked; set if the person may allow it for the session
}

// listed returns what the server's list says about the tool. ok reports whether the list has the tool.
func (c *call) listed(ctx context.Context) (t tool, ok bool) {
	t, ok, no, err := c.a.tools.Find(ctx, c.Upstream, c.r, c.modern)
	if err != nil || no != nil {
		return tool{}, false
	}
	return t, ok
}

// decide makes the call if a person allows it, or has allowed it before.
func (c *call) decide(ctx context.Context) (*jsonrpc.Message, error) {
	repeated := c.modern && (gjson.GetBytes(c.params, "requestState").Exists() || gjson.GetBytes(c.params, "inputResponses").Exists())
	switch {
	case c.state != nil && !c.a.use(c.state): // for example after a second click
		return c.refuse("the approval was used before: make the call again, without requestState"), nil
	case c.state != nil && c.state.Allowed:
		return c.pass(ctx)
	case c.state != nil:
		copy(c.asked[:], c.state.Definition)
		return c.answered(ctx, gjson.GetBytes(c.params, "inputResponses."+questionKey).Raw)
	case c.isRemembered(ctx):
		c.record(Decision{Outcome: Remembered})
		return c.pass(ctx)
	case repeated:
		return c.refuse("its approval has ended: make the call again, without requestState"), nil
	}
	if c.remembers() {
		t, _ := c.listed(ctx)
		c.asked = t.definition
	}
	for _, who := range c.rule.asks() {
		switch {
		case who == AskConsole:
			return c.askConsole(ctx)
		case c.modern && c.canAnswer():
			return c.ask(), nil
		case !c.modern:
			answer, asked, err := c.askClient(ctx)
			if err != nil {
				return nil, err
			}
			if asked {
				return c.settle(ctx, Decision{Asked: AskClient, Outcome: answer})
			}
		}
	}
	c.record(Decision{Outcome: Unasked})
	return c.refuse(fmt.Sprintf("nobody can be asked: the client offers no elicitation. "+
		"To let an operator decide, add %s to ask in the rule for this tool (servers: %s: approve)", AskConsole, c.a.s.Name)), nil
}

// settle makes the call if the decision allows it, and refuses it otherwise.
func (c *call) settle(ctx context.Context, d Decision) (*jsonrpc.Message, error) {
	if d.Outcome == ForSession && !c.remembers() {
		d.Outcome = Once
	}
	c.record(d)
	switch d.Outcome {
	case ForSession:
		c.a.remembered.Add(c.permit(), c.asked)
		return c.pass(ctx)
	case Once:
		return c.pass(ctx)
	case TimedOut:
		return c.refuse("nobody allowed it within " + c.rule.Timeout.String()), nil
	default:
		return c.refuse("the person who was asked did not allow it"), nil
	}
}

// pass makes the call. The server gets neither the bridge's question nor the bridge's state. If the server has questions of
// its own, the person is not asked again with their answers.
func (c *call) pass(ctx context.Context) (*jsonrpc.Message, error) {
	r := c.r
	if c.state != nil {
		inner := *c.r
		inner.Message = c.r.WithParams(c.state.restore(c.params))
		r = &inner
	}
	m, err := c.Upstream.Call(ctx, r)
	if err != nil || m.Error != nil || c.rule == nil || !c.modern || era.ResultType(m) != era.ResultInput {
		return m, err
	}
	return c.continued(m), nil
}

// remembers reports whether the person may allow the tool for the rest of the session.
func (c *call) remembers() bool {
	return c.rule.Remember == RememberSession && c.r.From.Session != ""
}

func (c *call) permit() permit {
	return permit{c.r.From.Principal, c.r.From.Session, c.r.Name()}
}

// isRemembered reports whether the person has allowed the tool for the rest of the session. A tool whose definition has
// changed since is another tool.
func (c *call) isRemembered(ctx context.Context) bool {
	if !c.remembers() {
		return false
	}
	allowed, ok := c.a.remembered.Get(c.permit())
	if !ok {
		return false
	}
	t, listed := c.listed(ctx)
	if listed && t.definition == allowed {
		return true
	}
	c.a.remembered.Remove(c.permit())
	return false
}

// refuse returns the answer to a call that nobody allowed.
func (c *call) refuse(why string) *jsonrpc.Message {
	return era.Refused(c.modern, c.r.Message, fmt.Sprintf("The call of %s needs a person's approval, and was not made: %s.", c.r.Name(), why))
}

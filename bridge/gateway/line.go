package gateway

import (
	"context"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/lane"
	"github.com/mcp-bridge/bridge/bridge/translate/lower"
)

// line is a lane with its guards, or a part in a shared one, as those use it who
// translate for clients without sessions.
type line struct {
	bridge.Upstream
	checked bridge.Upstream // with what the tools ask of calls
	lane    *lane.Lane
	kept    *keeper // nil when nothing is kept
}

// line returns a connection for clients without sessions. It is opened when it is
// needed.
func (r *route) line(from *bridge.Caller, rest bridge.Client) *line {
	var l *lane.Lane
	var up, guarded bridge.Upstream
	v, err := (*view)(nil), error(bridge.ErrUnavailable)
	if r.share == ShareAll {
		v, err = r.join(*from, rest)
	}
	if err == nil { // there is one for everybody, so there is room for it
		v.stateless = true
		l, up, guarded = v.h.lane, v, v.h.up
	} else {
		l, up = r.guarded(from, rest, false, func() { rest.Gone(nil) })
		guarded = up
	}
	kept, _ := guarded.(*keeper)
	return &line{up, r.tools.Wrap(up), l, kept}
}

// Caller is on whose behalf it is opened.
func (l *line) Caller() *bridge.Caller { return l.lane.Caller() }

// Checked returns it with what the tools ask of calls.
func (l *line) Checked() bridge.Upstream { return l.checked }

// Known returns what the handshake said, for which the connection is opened, and
// whether its wire says which call a question is about.
func (l *line) Known(ctx context.Context) (s *bridge.Greeting, attributes bool, err error) {
	return l.lane.Known(ctx)
}

// Holds reports whether the answer to a request is kept: see poolLine.
func (l *line) Holds(r *bridge.Request, s *bridge.Greeting, why error) bool {
	if l.kept == nil || s == nil || why != nil && !excused(why) || !l.kept.holds(r, s, why != nil) {
		return false
	}
	l.lane.Presume(s)
	return true
}

// Keep opens it, and keeps it open until release is called.
func (l *line) Keep(ctx context.Context) (release func(), err error) { return l.lane.Keep(ctx) }

// Go runs f in a goroutine that Close waits for.
func (l *line) Go(f func(ctx context.Context)) { l.lane.Go(f) }

// Ping asks for a sign of life, if there is a connection.
func (l *line) Ping(ctx context.Context, wait time.Duration) error { return l.lane.Ping(ctx, wait) }

// lowering returns what those need who translate for a legacy server.
func (r *route) lowering() lower.Options {
	return lower.Options{
		Name: r.o.Name, Log: r.log, MaxTask: r.o.MaxTask, Lasting: r.share != ShareCall, Alone: r.share == ShareSession,
		Instance: r.b.instance, Seals: r.b.seals, Rewrites: &r.rewrites, Identity: r.identity, Following: r.b.tracing.Following,
		Refusal: r.gate.Refusal,
	}
}

// identity says who the client of a request is, as far as it matters to the
// server: the principal, and what is forwarded of the headers.
func (r *route) identity(of *bridge.Request) string {
	key := of.From.Principal
	for _, f := range r.o.Forward {
		for _, value := range of.From.Header[f.From] {
			key += "\x00" + f.To + ":" + value
		}
	}
	return key
}

package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/url"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/server/internal/placement"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/login"
)

// backend is the adapter of a configured server, and its resources.
type backend struct {
	bridge.Adapter
	check         func() error     // returns the reason that the server cannot work now, or nil
	transport     func() string    // returns stdio, streamable, sse, rest, worker or in-process; empty while unknown
	close         func()           // closes the resources that outlive connections; may be nil
	hook          *hook            // the server's webhook, or nil
	fault         error            // the reason that its settings cannot be used
	api           *rest.Adapter    // the adapter of an HTTP API; nil for others
	documentFault error            // the fault of the server's documents, or of how the settings use them
	local         *placement.Local // the settings for its start at a worker; nil if the server is not placed at workers
}

type backendMaker func(*server, *config.Server) backend

// reach makes the adapter of a server by its kind.
func (s *server) reach(c *config.Server) backend {
	switch {
	case c.Unusable != "":
		return unusableBackend(c, errors.New(c.Unusable))
	case c.Adapter != nil:
		return backend{Adapter: c.Adapter, transport: func() string { return "in-process" }}
	case c.Stdio != nil:
		return s.child(c)
	case c.Rest != nil:
		return s.api(c)
	case c.Remote() != nil:
		return s.remote(c)
	}
	return unusableBackend(c, errors.New("there is no adapter for its kind"))
}

func (s *server) child(c *config.Server) backend {
	a := stdio.New(c.Name, *c.Stdio, s.limits(c))
	if c.Place == config.PlaceWorkers && s.instance != nil {
		return s.atWorkers(c, placement.Local{
			Adapter:      a,
			MaxProcesses: c.MaxChildren,
			Check:        a.Check,
		})
	}
	return backend{
		Adapter:   a,
		check:     a.Check,
		transport: func() string { return transportStdio },
	}
}

// atWorkers makes the adapter of a server whose child processes run at workers. local has the settings to start one.
func (s *server) atWorkers(c *config.Server, local placement.Local) backend {
	return backend{
		Adapter: s.instance.workers.Adapter(placement.WorkerServer{
			Name:         c.Name,
			MaxProcesses: c.MaxChildren,
			Queue:        c.Limits.Complete().Queue,
			Wait:         c.Limits.Complete().Wait,
			Handshake:    c.HandshakeTimeout,
			Timeouts:     s.limits(c).Timeouts,
		}),
		transport: func() string { return "worker" },
		local:     &local,
	}
}

func (s *server) api(c *config.Server) backend {
	o := RestOptions(c, int(s.Config().MaxMessage), s.log)
	a, err := rest.New(c.Name, *c.Rest, o)
	if err != nil {
		return unusableBackend(c, err)
	}
	b := backend{
		Adapter:   a,
		check:     a.Check,
		transport: func() string { return "rest" },
		close:     a.Close,
		api:       a,
	}
	if w := c.Rest.Catalog; w.Webhook && w.Secret != "" {
		b.hook = newHook(w.Secret, a.Renew)
	}
	return b
}

// RestOptions makes the options of an HTTP API from its server's settings.
func RestOptions(s *config.Server, maxMessage int, log *slog.Logger) rest.Options {
	o := rest.Options{
		Log:        log,
		Breaker:    s.Breaker,
		Timeout:    s.Timeout,
		MaxTimeout: s.MaxTimeout,
		MaxMessage: maxMessage,
		Prefix:     len(s.Prefix),
		Shows:      s.Tools.Shows,
		Reads:      s.Resources.PassesURI,
	}
	for _, f := range bridge.Lasting(s.Forwards()) {
		o.Forward = append(o.Forward, f.To)
	}
	for name := range s.Identity {
		o.Identity = append(o.Identity, name)
	}
	return o
}

// remote makes the adapter of a server over HTTP. Without a fixed transport, the path of its URL decides which
// transport is tried first (protocol.md C2.9).
func (s *server) remote(c *config.Server) backend {
	r := *c.Remote()
	o := s.limits(c)
	tokens, err := authorize(c.Name, &r, s.log)
	if err != nil {
		return unusableBackend(c, err)
	}
	newer, err := streamable.NewUpstream(c.Name, r, o)
	if err != nil {
		tokens()
		return unusableBackend(c, err)
	}
	older, err := sse.NewUpstream(c.Name, r, o)
	if err != nil {
		newer.Close()
		tokens()
		return unusableBackend(c, err)
	}
	ways := [2]remote.Candidate{
		{Transport: remote.TransportStreamable, Title: "Streamable HTTP", Adapter: newer},
		{Transport: remote.TransportSSE, Title: "HTTP+SSE", Adapter: older},
	}
	both := func() {
		newer.Close()
		older.Close()
		tokens()
	}
	fixed := r.Transport
	switch {
	case c.SSE != nil:
		fixed = remote.TransportSSE
	case o.Era == conn.EraModern:
		fixed = remote.TransportStreamable // HTTP+SSE does not support it (protocol.md D8.18)
	}
	for _, c := range ways {
		if c.Transport == fixed {
			return backend{
				Adapter:   c.Adapter,
				transport: func() string { return fixed },
				close:     both,
			}
		}
	}
	if config.EndsInSSE(r.URL) {
		ways[0], ways[1] = ways[1], ways[0]
	}
	a := &remote.Adapter{
		Server:     c.Name,
		Log:        s.log,
		Candidates: ways,
	}
	return backend{
		Adapter:   a,
		transport: a.Transport,
		close:     both,
	}
}

// authorize sets the source of tokens for requests to a server, by its settings. end stops the source.
func authorize(name string, c *remote.Config, log *slog.Logger) (end func(), err error) {
	if c.OAuth == nil || c.Auth != nil {
		return func() {}, nil
	}
	at, err := url.Parse(c.URL)
	if err != nil {
		return nil, errors.New("url: not a URL") // the URL may contain a secret
	}
	way, err := remote.Outward(*c, c.OAuth.Private, c.OAuth.Trusted()...)
	if err != nil {
		return nil, err
	}
	o := oauth.Options{
		Settings:  *c.OAuth,
		Server:    at,
		Transport: way,
		Log:       log.With("server", name),
	}
	if !c.OAuth.Login {
		m := oauth.NewMachine(o)
		c.Auth = m
		return m.Close, nil
	}
	who := login.Options{Options: o, Command: cmp.Or(c.OAuth.Command, "mcp-bridge login "+name)}
	if ask := c.OAuth.Ask; ask != nil {
		who.Ask = func(address string) { ask(c.URL, address) }
	}
	if device := c.OAuth.Device; device != nil {
		who.Device = func(address, code, both string) { device(c.URL, address, code, both) }
	}
	p, err := login.NewOwn(who)
	if p == nil {
		return func() {}, err
	}
	c.Auth = p
	return p.Close, nil
}

// unusableBackend returns the adapter of a server whose settings cannot be used.
func unusableBackend(s *config.Server, err error) backend {
	public := "its configuration cannot be used"
	if s.Unusable != "" { // clients learn no paths
		public = "it is out of service, because a variable or a file that its settings need is missing: the bridge's log and 'mcp-bridge check' say which"
	}
	return backend{
		Adapter: &unusable{&bridge.Error{
			Server: s.Name,
			Kind:   bridge.ErrUnavailable,
			Public: public,
			Err:    err,
		}},
		check:     func() error { return err },
		transport: func() string { return "" },
		fault:     err,
	}
}

// limits returns the limits of the server's connections, and their revisions. A modern revision in the settings
// allows only the modern era. A legacy revision bounds the revisions that a legacy server is offered.
func (s *server) limits(c *config.Server) conn.Options {
	o := conn.Options{
		Log:        s.log,
		MaxMessage: int(s.Config().MaxMessage),
		Timeouts:   s.times.of(c),
		Era:        conn.Era(c.Era),
		Revision:   c.Revision,
	}
	if era.IsModern(c.Revision) {
		o.Era, o.Revision = conn.EraModern, ""
	}
	return o
}

// times has the timeouts of calls, by server. A change applies to open connections too, also to connections of
// replaced servers. server.changing guards times.
type times map[string]*timing

type timing struct {
	live conn.Timeouts
	set  func(conn.Timeouts)
	now  conn.Timeouts
}

// of returns the timeouts of a server from its configuration. Until set is called, of returns the timeouts of an
// earlier server of the same name.
func (t times) of(s *config.Server) conn.Timeouts {
	one := t[s.Name]
	if one == nil {
		one = &timing{now: conn.Timeouts{Idle: s.Timeout, Max: s.MaxTimeout}}
		one.live, one.set = one.now.Live()
		t[s.Name] = one
	}
	return one.live
}

// set applies the timeouts of the servers, and forgets those of other servers.
func (t times) set(servers []config.Server) {
	there := map[string]bool{}
	for i := range servers {
		s := &servers[i]
		there[s.Name] = true
		if one, now := t[s.Name], (conn.Timeouts{Idle: s.Timeout, Max: s.MaxTimeout}); one != nil && one.now != now {
			one.now = now
			one.set(now)
		}
	}
	maps.DeleteFunc(t, func(name string, _ *timing) bool { return !there[name] })
}

// unusable is the adapter of a server whose settings cannot be used. Other servers are still served.
type unusable struct{ why *bridge.Error }

var _ bridge.Adapter = (*unusable)(nil)

func (u *unusable) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	return nil, u.why
}

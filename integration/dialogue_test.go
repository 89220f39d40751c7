package integration

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/sse"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/dialogue"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// TestDialogues plays all dialogues through a whole bridge, over each pair of transports that the revisions have, in
// memory: clients at a pipe or a listener, servers at a listener. The option not=TRANSPORT of a dialogue excludes a
// transport to the server, whose streams show which call a message is about. Without pauses, the servers are child
// processes, too: not=child excludes a dialogue whose lines do not say what must have happened before them.
func TestDialogues(t *testing.T) {
	t.Parallel()
	for _, subject := range dialogue.Folders(t) {
		t.Run(subject+"/stdio/child", func(t *testing.T) {
			dialogue.PlayLive(t, subject, func(t *testing.T, d *dialogue.Dialogue) dialogue.Bridge {
				if d.Pauses() {
					return nil
				}
				return newDialogueBridge(t, d, "stdio", "child")
			})
		})
		for _, downstream := range transports {
			for _, upstream := range transports {
				t.Run(subject+"/"+downstream+"/"+upstream, func(t *testing.T) {
					dialogue.PlayLoose(t, subject, func(t *testing.T, d *dialogue.Dialogue) dialogue.Bridge {
						return newDialogueBridge(t, d, downstream, upstream)
					})
				})
			}
		}
	}
}

// dialogueBridge is a bridge whose clients use one transport, and whose servers use one.
type dialogueBridge struct {
	t         *testing.T
	g         gateway.Gateway
	transport string
	server    string // that clients use; empty means all
	site      *wiretest.Site
	close     []func()
	after     []func() // the gateway's end
}

// newDialogueBridge returns nil if the revisions do not have the transports.
func newDialogueBridge(t *testing.T, d *dialogue.Dialogue, downstream, upstream string) dialogue.Bridge {
	if slices.Contains(strings.Split(d.Options["not"], ","), upstream) {
		return nil
	}
	for _, revision := range d.ClientRevisions() {
		if !slices.Contains(transportsOf(revision), downstream) {
			return nil
		}
	}
	b := &dialogueBridge{t: t, transport: downstream}
	o := gateway.Options{Log: slog.New(slog.DiscardHandler)}
	for _, s := range d.Servers {
		if upstream != "child" && !slices.Contains(transportsOf(s.Revision()), upstream) {
			return nil
		}
		settings := gateway.ServerSettings{
			Share:           gateway.Share(d.Options["share"]),
			Ping:            d.Duration("ping"),
			StartsPerMinute: d.Number("starts"),
			RestartMaxPause: d.Duration("max_pause"),
		}
		if len(d.Servers) > 1 {
			settings.Prefix = s.Name + "__"
		}
		settings.Breaker.Off = true
		settings.Cache.Off = d.Options["cache"] == "off"
		o.Servers = append(o.Servers, gateway.ServerOptions{
			Name:           s.Name,
			Adapter:        b.adapter(s, upstream),
			Idle:           d.Duration("idle"),
			EndWithServer:  d.Options["restart"] == "no",
			ServerSettings: settings,
		})
	}
	if len(d.Servers) == 1 {
		b.server = d.Servers[0].Name
	}
	b.g = gateway.New(o)
	switch downstream {
	case "streamable":
		down := streamable.New(b.g, streamable.Options{Log: o.Log})
		b.close = append(b.close, down.Close)
		b.site = wiretest.NewSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			down.Serve(b.server, w, asPrincipal(r))
		}))
	case "sse":
		down := sse.New(b.g, sse.Options{Log: o.Log})
		b.close = append(b.close, down.Close)
		b.site = wiretest.NewSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r = asPrincipal(r); r.Method == http.MethodGet {
				down.Stream(b.server, "/messages", w, r)
			} else {
				down.Message(b.server, w, r)
			}
		}))
	}
	return b
}

// asPrincipal returns the request on behalf of the principal that its header names.
func asPrincipal(r *http.Request) *http.Request {
	return r.WithContext(auth.WithPrincipal(r.Context(), r.Header.Get("Principal")))
}

// adapter reaches a server of a dialogue. A pipe to it is that of a child process, without the process.
func (b *dialogueBridge) adapter(s *dialogue.Server, transport string) bridge.Adapter {
	t := b.t
	switch transport {
	case "stdio":
		return s
	case "child":
		return b.child(t, s)
	}
	site := wiretest.NewSite(t, newDialogueServer(s, transport))
	c := remote.Config{
		URL:   "http://127.0.0.1:8808/mcp",
		Proxy: "none",
		Dial:  func(context.Context, string, string) (net.Conn, error) { return site.Dial(), nil },
	}
	o := conn.Options{Log: slog.New(slog.DiscardHandler)}
	if transport == "sse" {
		a, err := sse.NewUpstream(s.Name, c, o)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a, err := streamable.NewUpstream(s.Name, c, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Connect implements dialogue.Bridge.
func (b *dialogueBridge) Connect(c *dialogue.Client) dialogue.Wire {
	switch b.transport {
	case "stdio":
		return b.pipe(c)
	case "sse":
		return b.sse(c)
	}
	return b.streamable(c)
}

// Close implements dialogue.Bridge.
func (b *dialogueBridge) Close() {
	for _, f := range b.close {
		f()
	}
	b.g.Close(context.Background())
	for _, f := range b.after {
		f()
	}
}

// pipe serves a client at a pipe.
func (b *dialogueBridge) pipe(c *dialogue.Client) dialogue.Wire {
	near, far := wiretest.Pipe()
	w := &dialoguePipe{c: c, to: near, over: make(chan struct{})}
	go func() {
		defer far.Close()
		_ = stdio.Serve(context.Background(), b.g, b.server, far, far, stdio.DownstreamOptions{
			Log:       slog.New(slog.DiscardHandler),
			Principal: c.Caller.Principal,
		})
	}()
	go w.read(near)
	b.close = append(b.close, w.End)
	return w
}

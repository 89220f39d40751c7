package placement

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/adapters/streamable"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/cache"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/bridge/guard/retry"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// TunnelSessionOptions configure TunnelSessions. All are required.
type TunnelSessionOptions struct {
	// Adapter opens the connection of a tunnel, by the headers of the caller. The tunnel ends with the connection.
	Adapter bridge.Adapter
	Headers []string // headers of requests that the adapter gets
	// Await waits until requests may begin here. An error means that no request may begin.
	Await func(ctx context.Context) error
	Log   *slog.Logger
	// MaxMessage bounds one message, and MaxBytes all messages, in bytes.
	MaxMessage int
	MaxBytes   int64
}

// TunnelSessions serves the tunnels of other instances by a gateway of its own. Its only server is the connection
// that the headers of a tunnel name. Guards and access rules act at the other instance, or behind the adapter.
type TunnelSessions struct {
	o        TunnelSessionOptions
	g        gateway.Gateway
	sessions *streamable.Downstream
	calls    gateway.InFlight
	stopping context.Context // ends when this instance begins to stop
	stop     context.CancelFunc
	drained  chan struct{} // closed when this instance stops and no call is in flight, or Drain's time is over
	once     sync.Once     // closes drained
}

// vanishedAfter is how long a tunnel without requests stays. A living instance keeps a stream open.
const vanishedAfter = 2 * time.Minute

// maxTunnels bounds the sessions of tunnels, their connections, and their calls in flight.
const maxTunnels = 100_000

// NewTunnelSessions makes TunnelSessions. Close ends it.
func NewTunnelSessions(t TunnelSessionOptions) *TunnelSessions {
	s := &TunnelSessions{o: t, drained: make(chan struct{})}
	s.stopping, s.stop = context.WithCancel(context.Background())
	var forward []bridge.Forward
	for _, name := range t.Headers {
		forward = append(forward, bridge.Forward{From: name, To: name})
	}
	s.g = gateway.New(gateway.Options{
		Log:      t.Log.With("inner", true),
		Sessions: session.NewMemory(maxTunnels),
		Common: gateway.Common{
			SessionIdle:  vanishedAfter,
			PerPrincipal: limits.PerPrincipal{Sessions: maxTunnels, Calls: maxTunnels},
		},
		MaxBytes: t.MaxBytes,
		MaxLanes: maxTunnels,
		MaxCalls: maxTunnels,
		Servers: []gateway.ServerOptions{{
			Name:          "shared",
			Adapter:       t.Adapter,
			EndWithServer: true,
			Idle:          -1,
			ServerSettings: gateway.ServerSettings{
				HandshakeTimeout: time.Hour,
				MaxChildren:      maxTunnels,
				Limits:           limits.Options{Calls: maxTunnels},
				Breaker:          breaker.Options{Off: true},
				Cache:            cache.Options{Off: true},
				Retry:            retry.Options{Off: true},
			},
			Forward: forward,
		}},
	})
	s.sessions = streamable.New(s.g, streamable.Options{Log: t.Log, MaxMessage: t.MaxMessage})
	return s
}

// Stopping returns a context that ends when this instance begins to stop.
func (t *TunnelSessions) Stopping() context.Context { return t.stopping }

// Enter counts a call of another instance until Leave. The error is bridge.ErrShutdown if this instance stops, or a
// bridge.ErrOverloaded if too many calls are in flight.
func (t *TunnelSessions) Enter() error { return t.calls.Enter() }

// Leave ends the use that Enter began.
func (t *TunnelSessions) Leave() { t.calls.Leave() }

// Drain waits until no call of another instance is in flight, or ctx ends. A request that arrives meanwhile waits
// until Drain ends, and is then refused.
func (t *TunnelSessions) Drain(ctx context.Context) {
	t.stop()
	_ = t.calls.Drain(ctx)
	t.once.Do(func() { close(t.drained) })
}

// Close ends all tunnels and their connections.
func (t *TunnelSessions) Close(ctx context.Context) {
	t.stop()
	t.once.Do(func() { close(t.drained) })
	t.g.Close(ctx)
	t.sessions.Close()
}

// Serve serves a request of a tunnel. Serve answers 404 when no request may begin here: the other instance then opens
// another tunnel. Serve answers 503 when too many calls are in flight.
func (t *TunnelSessions) Serve(w http.ResponseWriter, r *http.Request) {
	if t.stopping.Err() != nil { // a request on a connection that is about to close would lose its answer
		w.Header().Set("Connection", "close")
	}
	if r.Method != http.MethodPost {
		t.sessions.Serve("", w, r)
		return
	}
	body, err := io.ReadAll(httpio.MaxBytes(w, r.Body, int64(t.o.MaxMessage)))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if m, err := jsonrpc.Parse(body); err == nil && m.IsRequest() {
		if t.o.Await(r.Context()) != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if err := t.calls.Enter(); !errors.Is(err, bridge.ErrShutdown) && err != nil {
			httpio.RetryAfter(w.Header(), time.Second) // too many calls
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		} else if err != nil {
			select {
			case <-t.drained:
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusNotFound)
			return
		}
		defer t.calls.Leave()
	}
	t.sessions.Serve("", w, r)
}

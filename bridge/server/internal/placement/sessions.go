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

// SessionOptions configure Sessions. All are needed.
type SessionOptions struct {
	// Adapter opens what a session leads to, which ends with that. The headers of the
	// caller say what that is.
	Adapter bridge.Adapter
	Headers []string // of the requests of a session, that the adapter gets
	// Await waits until requests may begin here. The error is that none may.
	Await func(ctx context.Context) error
	Log   *slog.Logger
	// MaxMessage and MaxBytes bound one message, and all of them together, in bytes.
	MaxMessage int
	MaxBytes   int64
}

// Sessions serves inner sessions, as a bridge of its own whose only server is what the
// headers of a session name. All that guards servers and tells clients apart has its place
// elsewhere: at the other instance, or behind the adapter.
type Sessions struct {
	o        SessionOptions
	gateway  *gateway.Gateway
	sessions *streamable.Downstream
	calls    gateway.InFlight
	stopping context.Context // ends when this instance begins to stop
	stop     context.CancelFunc
	drained  chan struct{} // closed when no call is under way then, or there is no more time
	once     sync.Once     // closes it
}

// forgotten is how long the session of an instance that has vanished is kept: one that
// lives listens.
const forgotten = 2 * time.Minute

// most bounds the inner sessions, and with that their connections.
const most = 100_000

// NewSessions makes Sessions. Close ends it.
func NewSessions(o SessionOptions) *Sessions {
	s := &Sessions{o: o, drained: make(chan struct{})}
	s.stopping, s.stop = context.WithCancel(context.Background())
	var forward []bridge.Forward
	for _, name := range o.Headers {
		forward = append(forward, bridge.Forward{From: name, To: name})
	}
	s.gateway = gateway.New(gateway.Options{
		Log: o.Log.With("inner", true), Sessions: session.NewMemory(most), SessionIdle: forgotten, MaxBytes: o.MaxBytes, MaxLanes: most, MaxCalls: most,
		PerPrincipal: limits.PerPrincipal{Sessions: most, Calls: most},
		Servers: []gateway.ServerOptions{{
			Name: "shared", Adapter: o.Adapter, EndWithServer: true, Idle: -1, Handshake: time.Hour, MaxLanes: most, Forward: forward,
			Limits: limits.Options{Calls: most}, Breaker: breaker.Options{Off: true}, Cache: cache.Options{Off: true}, Retry: retry.Options{Off: true},
		}},
	})
	s.sessions = streamable.New(s.gateway, streamable.Options{Log: o.Log, MaxMessage: o.MaxMessage})
	return s
}

// Stopping returns what ends when this instance begins to stop.
func (s *Sessions) Stopping() context.Context { return s.stopping }

// Enter counts a call that other instances make here, until Leave. The error is that this
// instance stops.
func (s *Sessions) Enter() error { return s.calls.Enter() }

// Leave ends what Enter began.
func (s *Sessions) Leave() { s.calls.Leave() }

// Drain waits until no call of another instance is under way, or ctx ends. Requests that
// come meanwhile wait, and are refused then.
func (s *Sessions) Drain(ctx context.Context) {
	s.stop()
	_ = s.calls.Drain(ctx)
	s.once.Do(func() { close(s.drained) })
}

// Close ends all sessions, and with them what they lead to.
func (s *Sessions) Close(ctx context.Context) {
	s.stop()
	s.once.Do(func() { close(s.drained) })
	s.gateway.Close(ctx)
	s.sessions.Close()
}

// Serve serves a request of another instance. It is 404 where nothing may begin here now:
// the other instance looks elsewhere then.
func (s *Sessions) Serve(w http.ResponseWriter, r *http.Request) {
	if s.stopping.Err() != nil { // a connection that ends under a request would cost that its answer
		w.Header().Set("Connection", "close")
	}
	if r.Method != http.MethodPost {
		s.sessions.Serve("", w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(s.o.MaxMessage)))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if m, err := jsonrpc.Parse(body); err == nil && m.IsRequest() {
		if s.o.Await(r.Context()) != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if err := s.calls.Enter(); !errors.Is(err, bridge.ErrShutdown) && err != nil {
			httpio.RetryAfter(w.Header(), time.Second) // there are too many
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		} else if err != nil {
			select {
			case <-s.drained:
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusNotFound)
			return
		}
		defer s.calls.Leave()
	}
	s.sessions.Serve("", w, r)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// revisionModern is the first revision without a handshake. Revisions are dates, so they can be compared as strings.
const revisionModern = "2026-07-28"

// serveStdio serves one client over stdin and stdout until either ends.
func serveStdio(ctx context.Context, s settings, stdin io.ReadCloser, stdout io.Writer) error {
	i := newInstance(s)
	defer i.close()
	// Run waits for the calls in flight, so a signal must cancel them.
	defer context.AfterFunc(ctx, i.stop)()
	err := i.server.Run(ctx, &mcp.IOTransport{Reader: stdin, Writer: keepOpen{stdout}})
	if ctx.Err() != nil {
		return nil // a signal is not a failure
	}
	return err
}

// keepOpen keeps the transport from closing a stream that it did not open.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// serveHTTP serves the HTTP kinds on the loopback interface until ctx ends.
func serveHTTP(ctx context.Context, s settings, stderr io.Writer) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)))
	if err != nil {
		return err
	}
	instances := newInstances(s)
	srv := &http.Server{
		Handler:           instances.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		// Streams end with their request's context, and so with ctx.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	fmt.Fprintf(stderr, "everything: listening on http://%s%s\n", listener.Addr(), instances.path())

	select {
	case err = <-served:
	case <-ctx.Done():
	}
	instances.close()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return errors.Join(err, srv.Shutdown(grace), srv.Close())
}

// instances is the set of live instances behind one HTTP listener. Each legacy session has its own instance. All modern
// clients share one instance, because their requests belong to no session.
type instances struct {
	settings settings
	modern   *instance

	mu   sync.Mutex // guards live
	live map[*instance]struct{}
}

func newInstances(s settings) *instances {
	set := &instances{settings: s, live: map[*instance]struct{}{}}
	set.modern = newInstance(s)
	set.modern.shared = true
	return set
}

// path returns the path of the endpoint.
func (i *instances) path() string {
	if i.settings.kind == kindSSE {
		return "/sse"
	}
	return "/mcp"
}

func (i *instances) handler() http.Handler {
	h := i.streamable()
	if i.settings.kind == kindSSE {
		h = mcp.NewSSEHandler(i.forRequest, nil)
	}
	mux := http.NewServeMux()
	mux.Handle(i.path(), onDemand(i, h))
	// The SDK checks Host. The protection here prevents posts from web pages of other origins.
	return http.NewCrossOriginProtection().Handler(mux)
}

// streamable serves both eras on one path. The SDK serves revision 2026-07-28 only with a stateless handler, and
// sessions only with a stateful handler. A header that every modern request must have chooses the handler.
func (i *instances) streamable() http.Handler {
	legacy := mcp.NewStreamableHTTPHandler(i.forRequest, &mcp.StreamableHTTPOptions{
		EventStore:     mcp.NewMemoryEventStore(nil), // clients can resume with Last-Event-ID
		SessionTimeout: i.settings.sessionIdle,
		Logger:         i.settings.log,
	})
	modern := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return i.modern.server }, &mcp.StreamableHTTPOptions{
		Stateless:                    true,
		PropagateRequestCancellation: true, // a modern client cancels by closing the connection
		Logger:                       i.settings.log,
	})
	switch i.settings.era {
	case eraLegacy:
		return legacy
	case eraModern:
		return modern
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("MCP-Protocol-Version") >= revisionModern {
			modern.ServeHTTP(w, r)
			return
		}
		legacy.ServeHTTP(w, r)
	})
}

type instanceKey struct{}

// onDemand makes at most one new instance per request. The SDK asks for a server several times per request, although
// only the request that opens a session keeps the server.
func onDemand(set *instances, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		get := sync.OnceValue(func() *instance { return set.add() })
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), instanceKey{}, get)))
	})
}

func (i *instances) forRequest(r *http.Request) *mcp.Server {
	if r.Header.Get("Mcp-Session-Id") != "" {
		return i.modern.server // only its list of revisions is used
	}
	return r.Context().Value(instanceKey{}).(func() *instance)().server
}

// add returns an instance that is in the set from its first message to the end of its session. Until the first message,
// there is nothing to close.
func (i *instances) add() *instance {
	one := newInstance(i.settings)
	one.began = func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.live[one] = struct{}{}
	}
	one.ended = func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.live, one)
	}
	return one
}

// close ends all sessions and waits for their goroutines.
func (i *instances) close() {
	i.mu.Lock()
	live := []*instance{i.modern}
	for one := range i.live {
		live = append(live, one)
	}
	i.mu.Unlock()
	var wg sync.WaitGroup
	for _, item := range live {
		wg.Go(item.close)
	}
	wg.Wait()
}

//lint:file-ignore SA1019 logging, roots and sampling are deprecated in 2026-07-28 and still part of everything.

package main

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

//go:embed docs/instructions.md
var instructions string

var errEnded = errors.New("the session has ended")

// An instance is one MCP server with the state that its client has toggled. Over stdio and in a legacy session, it
// serves one client and ends with the session. A shared instance serves all modern HTTP clients until close is called.
type instance struct {
	settings settings
	server   *mcp.Server

	shared       bool
	began, ended func() // called when the session begins and ends; may be nil
	watching     sync.Once

	ctx  context.Context // done when the instance ends
	stop context.CancelFunc
	wg   sync.WaitGroup // every goroutine of the instance

	mu         sync.Mutex // guards the rest, and wg.Go against wg.Wait
	subscribed map[subscription]struct{}
	logging    periodic
	updates    periodic
	extras     map[string]bool
}

type subscription struct {
	session *mcp.ServerSession
	uri     string
}

func newInstance(s settings) *instance {
	i := &instance{
		settings:   s,
		subscribed: map[subscription]struct{}{},
		extras:     map[string]bool{},
	}
	i.ctx, i.stop = context.WithCancel(context.Background()) // outlives the request that opens the session
	i.server = mcp.NewServer(&mcp.Implementation{
		Name:    "mcp-bridge/everything",
		Title:   "Everything example server",
		Version: "1.0.0",
	}, &mcp.ServerOptions{
		Instructions:              instructions,
		Logger:                    s.log,
		PageSize:                  s.pageSize,
		CompletionHandler:         complete,
		SubscribeHandler:          i.subscribe,
		UnsubscribeHandler:        i.unsubscribe,
		SupportedProtocolVersions: revisions(s),
	})
	i.server.AddReceivingMiddleware(i.bindCalls, nullIsAbsent)
	i.addTools()
	i.addAskingTools()
	i.addToggles()
	i.addPrompts()
	i.addResources()
	return i
}

// revisions returns the revisions that a server supports, or nil for all revisions.
func revisions(s settings) []string {
	era := s.era
	if s.kind == kindSSE {
		era = eraLegacy // as in the SDK (v1.8.0), except for a request before the handshake
	}
	if era == eraBoth {
		return nil
	}
	return slices.DeleteFunc(mcp.SupportedProtocolVersions(), func(r string) bool {
		return (r >= revisionModern) != (era == eraModern)
	})
}

// bindCalls cancels every call when the instance ends, because the end of an SDK session waits for the session's calls
// and does not cancel them.
func (i *instance) bindCalls(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if ss, ok := req.GetSession().(*mcp.ServerSession); ok && !i.shared {
			i.watching.Do(func() { i.watch(ss) })
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(i.ctx, func() { cancel(errEnded) })()
		return next(ctx, method, req)
	}
}

// nullIsAbsent treats "arguments": null as no arguments. If the tool's schema has defaults, the SDK (v1.8.0) panics,
// which would end the process with the sessions of all other clients.
func nullIsAbsent(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p, ok := req.GetParams().(*mcp.CallToolParamsRaw); ok && string(p.Arguments) == "null" {
			p.Arguments = nil
		}
		return next(ctx, method, req)
	}
}

// watch ends the instance when its session ends. The SDK has no callback for the end, so a goroutine waits for it.
func (i *instance) watch(ss *mcp.ServerSession) {
	if i.began != nil {
		i.began()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx.Err() != nil {
		return
	}
	i.wg.Go(func() {
		_ = ss.Wait() // the reason does not matter
		i.stop()
		if i.ended != nil {
			i.ended()
		}
	})
}

// close ends the instance and its sessions. It returns when all goroutines have ended.
func (i *instance) close() {
	i.mu.Lock()
	i.stop()
	i.mu.Unlock()
	for ss := range i.server.Sessions() {
		_ = ss.Close() // the client may have disconnected first
	}
	i.wg.Wait()
}

func (i *instance) subscribe(_ context.Context, req *mcp.SubscribeRequest) error {
	if !exists(req.Params.URI) {
		return mcp.ResourceNotFoundError(req.Params.URI)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.subscribed[subscription{req.Session, req.Params.URI}] = struct{}{}
	return nil
}

func (i *instance) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.subscribed, subscription{req.Session, req.Params.URI})
	return nil
}

// subscribedURIs returns each subscribed URI once.
func (i *instance) subscribedURIs() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var uris []string
	for s := range i.subscribed {
		uris = append(uris, s.uri)
	}
	slices.Sort(uris)
	return slices.Compact(uris)
}

// periodic is an action that is repeated until it is toggled off or the instance ends. The zero value is off.
type periodic struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// toggle toggles p and reports whether p is now on. On means that act runs at once and after every interval. Off means
// that act has stopped when toggle returns, unless ctx ends first. p must be a field of i.
func (i *instance) toggle(ctx context.Context, p *periodic, interval time.Duration, act func(context.Context)) (on bool, err error) {
	i.mu.Lock()
	if p.cancel != nil {
		was := *p
		*p = periodic{}
		i.mu.Unlock()
		was.cancel()
		select {
		case <-was.done:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	defer i.mu.Unlock()
	if i.ctx.Err() != nil {
		return false, errEnded
	}
	life, cancel := context.WithCancel(i.ctx)
	done := make(chan struct{})
	*p = periodic{cancel: cancel, done: done}
	i.wg.Go(func() {
		defer close(done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for life.Err() == nil {
			act(life)
			select {
			case <-ticker.C:
			case <-life.Done():
			}
		}
	})
	return true, nil
}

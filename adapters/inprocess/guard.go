package inprocess

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"weak"

	sdk "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// upstreamKey is the key of the session in the context of a handler. The SDK shows a middleware the
// connection of a request in no other way.
type upstreamKey struct{}

// guards remembers the servers that have the guard. It does not keep them from being collected.
type guards struct {
	mu   sync.Mutex // guards have
	have map[weak.Pointer[mcp.Server]]struct{}
}

// add adds the guard to s, but only once, since the SDK cannot remove a middleware.
func (g *guards) add(s *mcp.Server) {
	key := weak.Make(s)
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, has := g.have[key]; has {
		return
	}
	if g.have == nil {
		g.have = map[weak.Pointer[mcp.Server]]struct{}{}
	}
	g.have[key] = struct{}{}
	s.AddReceivingMiddleware(guard)
	runtime.AddCleanup(s, g.forget, key)
}

func (g *guards) forget(key weak.Pointer[mcp.Server]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.have, key)
}

// guard is a middleware that turns panics, which would end the process, into errors. It also ends the
// contexts of all handlers with their connection, which the SDK does for requests but not for
// notifications.
func guard(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (result mcp.Result, err error) {
		s, ours := ctx.Value(upstreamKey{}).(*session)
		if !ours {
			return next(ctx, method, r)
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
		defer stop()
		s.runs.begin(method)
		defer s.runs.end(method)
		defer func() {
			if fault := recover(); fault != nil {
				s.a.o.Log.Error("panic in a handler", "method", method, "err", fmt.Sprint(fault), "stack", string(debug.Stack()))
				result, err = nil, &sdk.Error{Code: sdk.CodeInternalError, Message: "internal error: the handler of this request panicked"}
			}
		}()
		return next(ctx, method, r)
	}
}

// runs counts the handlers that run, by method.
type runs struct {
	mu sync.Mutex // guards by
	by map[string]int
}

func (r *runs) begin(method string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]int{}
	}
	r.by[method]++
}

func (r *runs) end(method string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by[method]--; r.by[method] == 0 {
		delete(r.by, method)
	}
}

// methods returns the methods whose handlers run, sorted.
func (r *runs) methods() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.by))
}

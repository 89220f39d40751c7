// Package calls answers the requests of clients to an API: it lists the tools and the resources, and calls
// them.
//
// In go the tools that package tools made of one reading, as an [Edition]; out come connections for the
// bridge. An [API] holds the edition in use, and puts another one in its place while calls of the old one
// go on. Package wire, below, makes one HTTP request of one call.
//
// The package is read in this order: edition, origins (which servers get the calls of an edition), api (the
// edition in use), call (what package wire gets of a call), upstream (one connection).
package calls

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Options are the settings of an API.
type Options struct {
	Name      string // of the server
	Resources bool   // operations may be resources
	// Reads reports whether clients may read the resource at that URI. If it is nil, they may read all.
	Reads func(uri string) bool
	// Budget bounds the requests of all editions.
	Budget *wire.Budget
	Log    *slog.Logger
}

// API is an MCP server in front of one API, once its texts were read. It has no edition before the first
// Use.
type API struct {
	o       Options
	schemas *validate.Cache
	life    context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	current   *use       // nil before the first edition
	borrowed  bool       // current is another API's edition
	open      map[*upstream]struct{}
	listeners []*func(method string) // what AnnounceChanges registered
	closed    bool
}

// keptSchemas bounds the compiled schemas in the cache.
const keptSchemas = 512

// New returns an API without an edition. Close ends it.
func New(o Options) *API {
	a := &API{
		o:       o,
		schemas: validate.NewCache(keptSchemas),
		open:    map[*upstream]struct{}{},
	}
	a.life, a.stop = context.WithCancel(context.Background())
	return a
}

// AnnounceChanges registers a function that is called with the method of the notification when the
// tools or the resources change. stop removes it.
func (a *API) AnnounceChanges(changed func(method string)) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := &changed
	a.listeners = append(a.listeners, told)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.listeners = slices.DeleteFunc(a.listeners, func(f *func(string)) bool { return f == told })
	}
}

// Name returns the name of the server.
func (a *API) Name() string { return a.o.Name }

// now returns the edition in use, or nil.
func (a *API) now() *Edition {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current == nil {
		return nil
	}
	return a.current.Edition
}

// Ready reports whether there is an edition.
func (a *API) Ready() bool { return a.now() != nil }

// Borrows reports whether the edition in use is another API's.
func (a *API) Borrows() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.borrowed
}

// Nowhere returns why the edition in use can make no call, or nil. There must be an edition.
func (a *API) Nowhere() error { return a.now().nowhere }

// Mode returns the mode of the edition in use: tools.ModeTools, tools.ModeSearch, or "" without an
// edition.
func (a *API) Mode() string {
	if e := a.now(); e != nil {
		return e.Mode
	}
	return ""
}

// Edition returns the edition with these tools, to be passed to Use. The error says why they cannot be
// put to use. Before the first own edition, an API without a server is no error.
func (a *API) Edition(s *tools.Settings, m *tools.Made, first bool) (*Edition, error) {
	source, err := s.Source(m, a.schemas, a.o.Budget)
	if err != nil {
		return nil, err
	}
	e := &Edition{
		Set:     m.Set,
		source:  source,
		nowhere: m.Nowhere,
		users:   1,
	}
	var old *Edition
	if !first {
		old, err = a.now(), e.nowhere
	}
	if err == nil {
		err = e.compare(old, m, a.o.Log)
	}
	if err != nil {
		source.Close()
		return nil, err
	}
	return e, nil
}

// Use replaces the edition in use, and announces the changes. Calls of the old edition may end normally.
// Use reports false if the API is closed.
func (a *API) Use(e *Edition) bool {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		e.source.Close()
		return false
	}
	old := a.current
	a.current, a.borrowed = &use{Edition: e}, false
	if old == nil {
		a.mu.Unlock()
		return true
	}
	var changed []string
	if !old.Same(e.Set) {
		changed = append(changed, "tools")
	}
	if !old.SameResources(e.Set) {
		changed = append(changed, "resources")
	}
	tell, told := slices.Collect(maps.Keys(a.open)), slices.Clone(a.listeners)
	a.wg.Go(func() { a.leave(old) })
	a.mu.Unlock()
	for _, kind := range changed {
		for _, f := range told {
			(*f)(listChanged(kind))
		}
		for _, up := range tell {
			up.changed(kind)
		}
	}
	return true
}

// leave leaves an edition that was replaced after its calls, or when the API is closed.
func (a *API) leave(old *use) {
	ended := make(chan struct{})
	go func() {
		old.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-a.life.Done():
	}
	if old.left() {
		old.source.Close() // ends calls that are still running
		<-ended
	}
}

// Borrow makes the edition of before the one in use, until this API has its own. before may be closed at
// any time.
func (a *API) Borrow(before *API) {
	before.mu.Lock()
	u := before.current
	if before.closed || u == nil {
		before.mu.Unlock()
		return
	}
	u.shared()
	before.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current, a.borrowed = &use{Edition: u.Edition}, true
}

// acquire returns the edition in use for a call. There must be one. The caller must call calls.Done at
// the end of the call.
func (a *API) acquire() (*use, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, a.Unavailable("it was stopped", nil)
	}
	a.current.calls.Add(1)
	return a.current, nil
}

// Unavailable returns the error of an API that cannot be used because of err. Clients may see public.
func (a *API) Unavailable(public string, err error) error {
	return &bridge.Error{
		Server: a.o.Name,
		Kind:   bridge.ErrUnavailable,
		Public: public,
		Err:    err,
	}
}

// Close ends all calls and all goroutines of the API, and returns when they have ended.
func (a *API) Close() {
	a.mu.Lock()
	a.closed = true
	now := a.current
	a.mu.Unlock()
	a.stop()
	if now != nil && now.left() {
		now.source.Close()
		now.calls.Wait()
	}
	a.wg.Wait()
}

package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Adapter is an MCP server in front of one API.
type Adapter struct {
	name    string
	c       Config
	o       Options
	fetch   *fetcher
	schemas *validate.Cache
	life    context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup
	wakeups chan *wakeup // requests of webhooks for follow
	said    []string     // warnings about the last catalogue; only read uses them, and never twice at a time

	mu         sync.Mutex // guards the fields below
	current    *use       // nil before the first reading
	ownEdition bool       // this adapter read current, and did not borrow it
	reading    *reading   // the first reading in progress, or nil
	failed     error      // why the last attempt at a first reading failed
	failedAt   time.Time
	pushed     []byte // the catalogue that a webhook sent; nil if none did
	open       map[*upstream]struct{}
	listeners  []*func(method string) // what AnnounceChanges registered
	closed     bool
}

var (
	_ bridge.Adapter          = (*Adapter)(nil)
	_ bridge.AnnouncesChanges = (*Adapter)(nil)
)

// AnnounceChanges registers a function that is called with the method of the notification when the
// tools or the resources change. stop removes it.
func (a *Adapter) AnnounceChanges(changed func(method string)) (stop func()) {
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

// reading is one attempt to read the document, the overlays and the catalogue for the first time.
type reading struct {
	done chan struct{} // closed after err is set
	err  error
}

// keptSchemas bounds the compiled schemas in the cache.
const keptSchemas = 512

// New returns an adapter for the server of that name. c must be valid. New reads the certificates
// that c names. Begin, or else the first use, reads the document. Close ends the adapter.
func New(name string, c Config, o Options) (*Adapter, error) {
	o.Log = cmp.Or(o.Log, slog.Default()).With("server", name)
	fetch, err := c.newFetcher()
	if err != nil {
		return nil, err
	}
	a := &Adapter{
		name:    name,
		c:       c,
		o:       o,
		fetch:   fetch,
		schemas: validate.NewCache(keptSchemas),
		wakeups: make(chan *wakeup),
		open:    map[*upstream]struct{}{},
	}
	a.life, a.stop = context.WithCancel(context.Background())
	return a, nil
}

// Check returns why the API is unusable now, or nil if it is usable.
func (a *Adapter) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != nil {
		return a.current.nowhere
	}
	return cmp.Or(a.failed, errUnread)
}

// Open implements bridge.Adapter.
func (a *Adapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	u, err := a.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer u.calls.Done()
	return a.connect(u.edition, from, rest)
}

// acquire returns the current edition for a call. If nothing was read yet, it waits for the first
// reading. The caller must call calls.Done at the end of the call.
func (a *Adapter) acquire(ctx context.Context) (*use, error) {
	a.mu.Lock()
	there := a.current != nil
	a.mu.Unlock()
	if !there {
		if err := a.firstRead(ctx); errors.Is(err, errUnread) {
			return nil, a.unavailable(errUnread.Error(), err)
		} else if err != nil {
			return nil, a.unavailable("its description cannot be used", err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, a.unavailable("it was stopped", nil)
	}
	a.current.calls.Add(1)
	return a.current, nil
}

// firstRead waits for the first reading, and starts it if none is in progress. It does nothing if the
// adapter has its own edition or is closed.
func (a *Adapter) firstRead(ctx context.Context) error {
	a.mu.Lock()
	if a.ownEdition || a.closed {
		a.mu.Unlock()
		return nil
	}
	r := a.reading
	if r == nil {
		r = &reading{done: make(chan struct{})}
		a.reading = r
		a.wg.Go(func() { a.begin(r) })
	}
	a.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errUnread, context.Cause(ctx))
	}
}

func (a *Adapter) unavailable(public string, err error) error {
	return &bridge.Error{
		Server: a.name,
		Kind:   bridge.ErrUnavailable,
		Public: public,
		Err:    err,
	}
}

// begin does the first reading. If that succeeds, begin watches for changes until the adapter is
// closed.
func (a *Adapter) begin(r *reading) {
	before := stampFiles(append([]string{a.c.OpenAPI, a.c.Catalog.File}, a.c.Overlays...))
	e, err := a.read(true, a.pushedCatalog())
	if _, ok := errors.AsType[*CatalogError](err); ok {
		a.o.Log.Warn("the catalogue from a webhook no longer fits the configuration: send it again", "err", err)
		a.carry(nil)
		e, err = a.read(true, nil)
	}
	if err == nil && !a.swap(e) {
		err = errors.New("the server was stopped")
	}
	a.mu.Lock()
	a.reading, a.failed, a.failedAt = nil, err, time.Now()
	r.err = err
	a.mu.Unlock()
	close(r.done)
	if err == nil && (len(e.texts) > 0 || a.c.Catalog.Webhook) {
		a.follow(watch(a.fetch, e.texts, before), e.saved)
	}
}

// read returns a new edition. In the first reading, a fault in the configuration is an error. Later,
// the document may have changed, so that a fault affects only its own entry. brought, unless nil, is
// the catalogue.
func (a *Adapter) read(first bool, brought []byte) (*edition, error) {
	live := &recorder{
		fetcher: a.fetch,
		texts:   map[string][]byte{},
		outside: map[string]bool{},
	}
	if first {
		if _, err := os.Stat(a.c.keptPath()); err == nil {
			live.limit = patience
		}
	}
	m, err := a.c.read(a.life, a.name, &a.o, live, brought)
	_, unusable := errors.AsType[*documentError](err)
	empty := err == nil && m.empty()
	switch {
	case first && (unusable || empty):
		saved, why := a.readAgain(cmp.Or(err, errEmpty), brought)
		if why == nil {
			m, err, live = saved, nil, nil // with live nil, the saved texts are not replaced
		} else if unusable {
			err = why
		}
	case empty && a.hasOperations():
		err = errEmpty
	}
	if err != nil {
		return nil, err
	}
	away := live != nil && len(live.failed) > 0 // an unreadable text may have the operations that the settings name
	if first && len(m.faults) > 0 && !away {
		return nil, m.faults
	}
	for _, f := range m.faults {
		a.o.Log.Warn("the configuration no longer fits the document", "what", f.String())
	}
	source, err := newSource(&a.c, m, a.name, &a.o, a.schemas)
	if err != nil {
		return nil, err
	}
	e := &edition{
		catalog: a.c.catalog(m, a.name),
		source:  source,
		texts:   m.texts,
		saved:   live == nil,
		users:   1,
	}
	if m.doc != nil {
		e.operations = len(m.doc.Operations)
	}
	e.nowhere = a.c.nowhere(m)
	err = a.compare(first, e, m)
	if !first {
		err = cmp.Or(err, e.nowhere)
	}
	if err != nil {
		source.Close()
		return nil, err
	}
	if live != nil {
		if err := a.c.keepTexts(live); err != nil {
			a.o.Log.Warn("the document cannot be saved in keep_dir", "err", err)
		}
	}
	if e.nowhere != nil {
		return e, nil // Begin returns e.nowhere as its error
	}
	odd := slog.LevelDebug
	if a.c.Remarks {
		odd = slog.LevelWarn
	}
	var said []string
	for _, w := range m.warnings {
		level, where := odd, "in the document"
		if w.File == publishedFile {
			said = append(said, w.Text)
			if where = "in the catalogue"; !slices.Contains(a.said, w.Text) {
				level = slog.LevelWarn
			}
		}
		a.o.Log.Log(a.life, level, where, "warning", w.String())
	}
	a.said = said
	a.o.Log.Info("tools made", "tools", len(e.tools), "bytes", e.size, "mode", e.mode, "output_schemas_left_out", e.outputsOmitted, "lost", len(m.lost), "warnings", len(m.warnings))
	if len(m.lost) > 0 {
		a.o.Log.Warn("operations of the document cannot be tools: mcp-bridge check says why; mend the document, or leave them out by expose", "operations", lostKeys(m.lost))
	}
	if e.mode == ModeTools && e.size > autoLimit {
		a.o.Log.Warn("the list of tools is long: models read all of it at each turn; see mode and expose", "bytes", e.size)
	}
	return e, nil
}

// errEmpty is why a document without operations does not replace a document with operations. Such a
// document is more likely the answer of a failing server than the end of an API.
var errEmpty = errors.New("the document has no operations, and had some before: to use it, restart the bridge, and remove what keep_dir saved")

// hasOperations reports whether the current document has operations.
func (a *Adapter) hasOperations() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current != nil && a.current.operations > 0
}

// readAgain reads the document saved on disk, in place of a document that is unusable because of why.
// If none is saved, the error is why.
func (a *Adapter) readAgain(why error, brought []byte) (*material, error) {
	k, err := a.c.readKept(a.fetch)
	if k == nil {
		if err != nil {
			a.o.Log.Warn("the saved document cannot be read", "err", err)
		}
		return nil, why
	}
	m, err := a.c.read(a.life, a.name, &a.o, k, brought)
	if err != nil {
		return nil, fmt.Errorf("%w; and the document saved in keep_dir cannot be used either: %w", why, err)
	}
	if errors.Is(why, errEmpty) && len(m.doc.Operations) == 0 {
		return nil, why
	}
	a.o.Log.Warn("the document cannot be used: the last good one stays in use", "err", why, "read", k.Read, "age", time.Since(k.Read).Round(time.Second).String())
	return m, nil
}

// filePause is the pause between checks of files for changes, and urlPause that between checks of
// URLs, unless Refresh is set.
const (
	filePause = 2 * time.Second
	urlPause  = 5 * time.Minute
)

// follow watches for changes until the adapter is closed. It polls, since neither file systems nor
// exchanged volumes of containers always report changes. While the saved document is in use, follow
// reads the URL at once, and then at least every longestPause.
func (a *Adapter) follow(w *watched, saved bool) {
	pause := cmp.Or(a.c.Refresh, filePause)
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	asked, said := time.Now(), ""
	urls := cmp.Or(a.c.Refresh, urlPause)
	pausing := urls
	if saved {
		asked, pausing = time.Time{}, min(urls, longestPause)
	}
	for {
		var l *wakeup
		select {
		case <-ticker.C:
		case l = <-a.wakeups:
		case <-a.life.Done():
			return
		}
		changed := l != nil || w.filesChanged()
		if len(w.urls) > 0 && !changed && time.Since(asked) >= pausing {
			asked = time.Now()
			var err error
			if changed, err = w.urlsChanged(a.life); err != nil {
				said = a.logUnusable(said, err)
			}
		}
		if !changed {
			continue
		}
		texts, newest := w.texts(), a.pushedCatalog()
		before := stampFiles(texts)
		if l != nil && l.body != nil {
			newest = l.body
		}
		e, err := a.read(false, newest)
		if err != nil {
			said = a.logUnusable(said, err)
		} else {
			said, pausing = "", urls
			a.carry(newest)
			texts = e.texts
			if !a.swap(e) {
				return
			}
		}
		l.answer(e, err)
		w = watch(a.fetch, texts, before)
	}
}

// logUnusable logs that the document or the catalogue cannot be used, unless said is the text of the
// same error. It returns that text, for the next call.
func (a *Adapter) logUnusable(said string, err error) string {
	if text := err.Error(); text != said && a.life.Err() == nil {
		a.o.Log.Warn("the tools stay as they were: the document or the catalogue cannot be used", "err", err)
		return text
	}
	return said
}

// pushedCatalog returns the last catalogue that a webhook sent, or nil.
func (a *Adapter) pushedCatalog() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pushed
}

func (a *Adapter) carry(brought []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pushed = brought
}

// swap replaces the current edition, and announces the changes. Calls of the old edition may end
// normally. swap reports false if the adapter is closed.
func (a *Adapter) swap(e *edition) bool {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		e.source.Close()
		return false
	}
	old := a.current
	a.current, a.ownEdition = &use{edition: e}, true
	if old == nil {
		a.mu.Unlock()
		return true
	}
	var changed []string
	if !old.same(e.catalog) {
		changed = append(changed, "tools")
	}
	if !old.sameResources(e.catalog) {
		changed = append(changed, "resources")
	}
	tell, told := slices.Collect(maps.Keys(a.open)), slices.Clone(a.listeners)
	a.wg.Go(func() { // leaves the old edition after its calls
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
	})
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

// Close ends all calls and all goroutines of the adapter, and returns when they have ended.
func (a *Adapter) Close() {
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
	a.fetch.close()
}

// OffersSearch implements bridge.OffersSearch.
func (a *Adapter) OffersSearch() (search, decided bool) {
	if a.c.Mode == ModeSearch || a.c.Mode == ModeTools {
		return a.c.Mode == ModeSearch, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current == nil || a.current.mode == ModeSearch, a.current != nil
}

// Report describes an API before it is used.
type Report struct {
	// Tools is the number of tools, and Size the bytes of a list of all tools.
	Tools, Size int
	// Names are the names among which Options.Shows chooses. They are nil if not all are known.
	Names          []string
	Resources      int    // operations that are resources instead of tools
	OutputsOmitted int    // bytes of output schemas omitted to shorten the list
	Mode           string // ModeTools or ModeSearch
	// Lost are exposed operations that cannot be tools, as METHOD path, or as a path whose operations
	// are unknown. Warnings say why.
	Lost     []string
	Empty    bool // the document has no operations
	Warnings []openapi.Warning
	Unread   bool // the document is at a URL, and was not read
	// Advice, for an Unread document, says which settings it may need; it may be empty.
	Advice string
	// CatalogUnread says that the catalogue was not read: it is at a URL, its file does not exist
	// yet, or a webhook sends it.
	CatalogUnread bool

	tools   []*toolset.Tool          // including resources
	uris    map[*toolset.Tool]string // of resources
	doc     *openapi.Document
	config  *Config
	timeout time.Duration
	most    time.Duration // the longest timeout of a tool; no limit if 0
}

// Inspect reports the tools of a document that is a file. It makes no connection, and so does not
// read a URL. If entries of the configuration have faults, the error is of type Faults.
func (c *Config) Inspect(ctx context.Context, name string, o Options) (*Report, error) {
	if address.IsHTTP(c.OpenAPI) {
		_, err := c.readOverlays()
		report := &Report{Unread: true}
		if c.BaseURL == "" && len(c.origins()) == 0 {
			report.Advice = "; if it is on the internet, servers that it names in a private network or on this machine need base_url or trusted"
		}
		return report, err
	}
	elsewhere := c.Catalog.exists() && (c.Catalog.File == "" || c.Catalog.missing())
	waited := ""
	if elsewhere {
		waited = c.Catalog.File
		known := *c
		known.Catalog = Catalog{}
		c = &known
	}
	m, err := c.read(ctx, name, &o, nil, nil)
	if err != nil {
		return nil, err
	}
	if len(m.faults) > 0 {
		return nil, m.faults
	}
	if err := c.nowhere(m); err != nil {
		return nil, err
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	source, err := newSource(c, m, name, &o, nil)
	if err != nil {
		return nil, err
	}
	source.Close()
	if waited != "" {
		m.warnings = append(m.warnings, openapi.Warning{File: publishedFile, Text: "mcp-bridge waits for " + waited + ", which does not exist yet"})
	}
	list := c.catalog(m, name)
	report := &Report{
		Tools:          len(list.tools),
		Size:           list.size,
		OutputsOmitted: list.outputsOmitted,
		Mode:           list.mode,
		Warnings:       m.warnings,
		CatalogUnread:  elsewhere,
		Resources:      len(m.resources),
		tools:          slices.Clone(list.tools),
		doc:            m.doc,
		config:         c,
		uris:           map[*toolset.Tool]string{},
		timeout:        cmp.Or(o.Timeout, wire.DefaultTimeout),
		most:           o.MaxTimeout,
	}
	report.Lost, report.Empty = lostKeys(m.lost), m.empty()
	if !elsewhere {
		report.Names = m.names
	}
	for _, r := range m.resources {
		report.tools, report.uris[r.Tool] = append(report.tools, r.Tool), r.uri
	}
	return report, nil
}

// lostKeys returns the keys of lost operations.
func lostKeys(lost []*openapi.Operation) []string {
	var all []string
	for _, op := range lost {
		all = append(all, strings.TrimSpace(op.Key()))
	}
	return all
}

// If neither the document nor BaseURL names a server, nowhere returns the reason why no tool can be
// called, and otherwise nil.
func (c *Config) nowhere(m *material) error {
	if m.reach == nil || len(m.all) == 0 {
		return nil
	}
	if why := m.reach.Nowhere(); why != nil {
		return fmt.Errorf("openapi is %q, which %w: add base_url: URL", c.OpenAPI, why)
	}
	return nil
}

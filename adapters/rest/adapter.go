package rest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/calls"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/bridge"
)

// Adapter is an MCP server in front of one API.
type Adapter struct {
	c        Config
	o        Options
	maker    *maker
	follower *document.Follower
}

var (
	_ bridge.Adapter          = (*Adapter)(nil)
	_ bridge.AnnouncesChanges = (*Adapter)(nil)
)

// New returns an adapter for the server of that name. c must be valid. New reads the certificates
// that c names. Begin, or else the first use, reads the document. Close ends the adapter.
func New(name string, c Config, o Options) (*Adapter, error) {
	o.Log = cmp.Or(o.Log, slog.Default()).With("server", name)
	m := &maker{log: o.Log, remarks: c.Remarks}
	var err error
	if m.texts, err = document.New(c.documents(o.Log)); err != nil {
		return nil, err
	}
	if m.settings, err = c.settings(name, &o); err != nil {
		return nil, err
	}
	m.api = calls.New(calls.Options{
		Name:      name,
		Resources: m.settings.HasResources(),
		Reads:     o.Reads,
		Budget:    m.settings.Budget(),
		Log:       o.Log,
	})
	return &Adapter{
		c:        c,
		o:        o,
		maker:    m,
		follower: document.NewFollower(m.texts, m, c.Refresh, c.Catalog.Webhook),
	}, nil
}

// AnnounceChanges registers a function that is called with the method of the notification when the
// tools or the resources change. stop removes it.
func (a *Adapter) AnnounceChanges(changed func(method string)) (stop func()) {
	return a.maker.api.AnnounceChanges(changed)
}

// Begin reads the document, the overlays and the catalogue before the first use. When it returns,
// it has read all files. If a file has a fault, it returns an error.
//
// Begin reads URLs, and a catalogue file that does not exist yet, in the background, until that
// succeeds. Until then, calls use the edition of before. before is the adapter of the same server
// with the previous settings, or nil; it may be closed at any time.
func (a *Adapter) Begin(before *Adapter) error {
	if before != nil && a.c.Catalog.Webhook && a.c.Catalog.location() == "" {
		a.follower.Push(before.follower.Pushed())
	}
	if a.maker.texts.OnlyFiles() {
		err := a.follower.Now()
		if err == nil {
			return a.maker.api.Nowhere()
		}
		if !errors.Is(err, fs.ErrNotExist) || !a.c.Catalog.missing() {
			return err
		}
	} else if _, err := a.c.Inspect(context.Background(), a.maker.api.Name(), a.o); err != nil {
		return err
	}
	if before != nil {
		a.maker.api.Borrow(before.maker.api)
	}
	a.follower.Retry()
	return nil
}

// Check returns why the API is unusable now, or nil if it is usable.
func (a *Adapter) Check() error {
	if a.maker.api.Ready() {
		return a.maker.api.Nowhere()
	}
	_, failed := a.follower.Failed()
	return cmp.Or(failed, document.ErrUnread)
}

// Behind returns why the previous adapter's edition is still in use, and when the last try to replace
// it failed. Both are zero if no edition is borrowed.
func (a *Adapter) Behind() (since time.Time, why error) {
	if !a.maker.api.Borrows() {
		return time.Time{}, nil
	}
	return a.follower.Failed()
}

// ready waits for the first edition. The error is for clients.
func (a *Adapter) ready(ctx context.Context) error {
	if a.maker.api.Ready() {
		return nil
	}
	switch err := a.follower.First(ctx); {
	case err == nil:
		return nil
	case errors.Is(err, document.ErrUnread):
		return a.maker.api.Unavailable(document.ErrUnread.Error(), err)
	case errors.Is(err, document.ErrStopped):
		return a.maker.api.Unavailable("it was stopped", nil)
	default:
		return a.maker.api.Unavailable("its description cannot be used", err)
	}
}

// Open implements bridge.Adapter.
func (a *Adapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	return a.maker.api.Open(from, rest)
}

// Tools returns all tools as a JSON list, including tools that tools/list leaves out.
func (a *Adapter) Tools(ctx context.Context) ([]byte, error) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	return a.maker.api.Tools()
}

// Plan returns the text of the request that a call of the named tool would send, with secrets
// masked. It makes no call, but may read the document.
func (a *Adapter) Plan(ctx context.Context, name string, args []byte) (string, error) {
	if err := a.ready(ctx); err != nil {
		return "", err
	}
	return a.maker.api.Plan(name, args)
}

// OffersSearch implements bridge.OffersSearch.
func (a *Adapter) OffersSearch() (search, decided bool) {
	mode := a.c.Mode
	if mode != ModeSearch && mode != ModeTools {
		mode = a.maker.api.Mode()
	}
	return mode != ModeTools, mode != ""
}

// ErrElsewhere is the error of a catalogue in a webhook's request if the configuration names a file
// or a URL.
var ErrElsewhere = errors.New("the catalogue is read from its file or URL: send nothing, and it is read again")

// Renew reads everything again at once, for a webhook, and returns the number of tools. body, unless
// empty, is the new catalogue. If body is unusable, the error is ErrElsewhere or a *CatalogError.
func (a *Adapter) Renew(ctx context.Context, body []byte) (tools int, err error) {
	if len(bytes.TrimSpace(body)) == 0 {
		body = nil
	} else {
		if a.c.Catalog.location() != "" {
			return 0, ErrElsewhere
		}
		body = bytes.Clone(body)
		// Only faults in the catalogue are for its sender.
		if err := a.maker.settings.CheckCatalog(body); err != nil {
			return 0, &CatalogError{Err: err}
		}
	}
	tools, err = a.follower.Renew(ctx, body)
	if errors.Is(err, document.ErrStopped) {
		return 0, a.maker.api.Unavailable("it was stopped", nil)
	}
	return tools, err
}

// Close ends all calls and all goroutines of the adapter, and returns when they have ended.
func (a *Adapter) Close() {
	a.follower.Close()
	a.maker.api.Close()
	a.maker.texts.Close()
}

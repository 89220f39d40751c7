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
	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/bridge"
)

// Adapter is an MCP server in front of one API.
type Adapter struct {
	c        Config
	o        Options
	texts    *document.Reader
	follower *document.Follower
	settings *tools.Settings
	api      *calls.API
	said     []string // warnings about the last catalogue; only Make uses them, and never twice at a time
}

var (
	_ bridge.Adapter          = (*Adapter)(nil)
	_ bridge.AnnouncesChanges = (*Adapter)(nil)
)

// New returns an adapter for the server of that name. c must be valid. New reads the certificates
// that c names. Begin, or else the first use, reads the document. Close ends the adapter.
func New(name string, c Config, o Options) (*Adapter, error) {
	o.Log = cmp.Or(o.Log, slog.Default()).With("server", name)
	a := &Adapter{c: c, o: o}
	var err error
	if a.texts, err = document.New(c.documents(o.Log)); err != nil {
		return nil, err
	}
	if a.settings, err = c.settings(name, &o); err != nil {
		return nil, err
	}
	a.api = calls.New(calls.Options{
		Name:      name,
		Resources: a.settings.HasResources(),
		Reads:     o.Reads,
		Log:       o.Log,
	})
	a.follower = document.NewFollower(a.texts, (*maker)(a), c.Refresh, c.Catalog.Webhook)
	return a, nil
}

// AnnounceChanges registers a function that is called with the method of the notification when the
// tools or the resources change. stop removes it.
func (a *Adapter) AnnounceChanges(changed func(method string)) (stop func()) {
	return a.api.AnnounceChanges(changed)
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
	if a.texts.OnlyFiles() {
		err := a.follower.Now()
		if err == nil {
			return a.api.Nowhere()
		}
		if !errors.Is(err, fs.ErrNotExist) || !a.c.Catalog.missing() {
			return err
		}
	} else if _, err := a.c.Inspect(context.Background(), a.api.Name(), a.o); err != nil {
		return err
	}
	if before != nil {
		a.api.Borrow(before.api)
	}
	a.follower.Retry()
	return nil
}

// Check returns why the API is unusable now, or nil if it is usable.
func (a *Adapter) Check() error {
	if a.api.Ready() {
		return a.api.Nowhere()
	}
	_, failed := a.follower.Failed()
	return cmp.Or(failed, document.ErrUnread)
}

// Behind returns why the previous adapter's edition is still in use, and when the last try to replace
// it failed. Both are zero if no edition is borrowed.
func (a *Adapter) Behind() (since time.Time, why error) {
	if !a.api.Borrows() {
		return time.Time{}, nil
	}
	return a.follower.Failed()
}

// ready waits for the first edition. The error is for clients.
func (a *Adapter) ready(ctx context.Context) error {
	if a.api.Ready() {
		return nil
	}
	switch err := a.follower.First(ctx); {
	case err == nil:
		return nil
	case errors.Is(err, document.ErrUnread):
		return a.api.Unavailable(document.ErrUnread.Error(), err)
	case errors.Is(err, document.ErrStopped):
		return a.api.Unavailable("it was stopped", nil)
	default:
		return a.api.Unavailable("its description cannot be used", err)
	}
}

// Open implements bridge.Adapter.
func (a *Adapter) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	return a.api.Open(from, rest)
}

// Tools returns all tools as a JSON list, including tools that tools/list leaves out.
func (a *Adapter) Tools(ctx context.Context) ([]byte, error) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	return a.api.Tools()
}

// Plan returns the text of the request that a call of the named tool would send, with secrets
// masked. It makes no call, but may read the document.
func (a *Adapter) Plan(ctx context.Context, name string, args []byte) (string, error) {
	if err := a.ready(ctx); err != nil {
		return "", err
	}
	return a.api.Plan(name, args)
}

// OffersSearch implements bridge.OffersSearch.
func (a *Adapter) OffersSearch() (search, decided bool) {
	mode := a.c.Mode
	if mode != ModeSearch && mode != ModeTools {
		mode = a.api.Mode()
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
		if err := a.settings.CheckCatalog(body); err != nil {
			return 0, &CatalogError{Err: err}
		}
	}
	tools, err = a.follower.Renew(ctx, body)
	if errors.Is(err, document.ErrStopped) {
		return 0, a.api.Unavailable("it was stopped", nil)
	}
	return tools, err
}

// Close ends all calls and all goroutines of the adapter, and returns when they have ended.
func (a *Adapter) Close() {
	a.follower.Close()
	a.api.Close()
	a.texts.Close()
}

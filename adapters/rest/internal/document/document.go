// Package document has the texts of an API: its OpenAPI document with overlays and references, and the
// text of its catalogue.
//
// A [Reader] reads these texts. It saves the last good document of a URL on disk, and reads the saved
// one if the bridge starts while the URL cannot be read. A [Follower] reads the texts for the first
// time, and again whenever they have changed or a webhook asks for that. It gives each [Reading] to a
// [Maker], which makes the API's tools of it.
//
// The package is read in this order: options, fetch (one text from a URL), kept (the saved document), watch (what
// has changed), document (one reading), follow (one reading after the other). detect stands alone: it
// says whether a file or a URL is a document at all.
package document

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/overlay"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/files"
)

// Reader reads the texts of an API.
type Reader struct {
	o     Options
	fetch *fetcher // nil if the reader reads files only

	filled bool // the document accepted last has operations
}

// New returns a reader. It reads the certificates that o.HTTP names.
func New(o Options) (*Reader, error) {
	f, err := newFetcher(&o)
	if err != nil {
		return nil, err
	}
	return &Reader{o: o, fetch: f}, nil
}

// Offline returns a reader that reads files only.
func Offline(o Options) *Reader { return &Reader{o: o} }

// Clients returns the clients that read URLs. They may be replaced before the first reading.
func (r *Reader) Clients() *Clients { return &r.fetch.Clients }

// OnlyFiles reports whether all texts are files.
func (r *Reader) OnlyFiles() bool {
	return !address.IsHTTP(r.o.Location) && !address.IsHTTP(r.o.Catalog)
}

// Close closes unused connections.
func (r *Reader) Close() { r.fetch.close() }

// Reading is what one reading found.
type Reading struct {
	Document *openapi.Document // nil without a document
	Catalog  []byte            // the text of the catalogue; nil if Options name none
	Saved    bool              // the document is the one saved on disk
	texts    []string          // paths and URLs of all texts that were read
	live     *recorder         // nil if the document was saved, or if only files are read
}

// Whole reports whether all texts could be read. If not, the document may lack operations.
func (r *Reading) Whole() bool { return r.live == nil || len(r.live.failed) == 0 }

// Empty reports whether the document has no operations. Lost operations count, since they may become
// usable.
func (r *Reading) Empty() bool { return r.Document != nil && isEmpty(r.Document) }

func isEmpty(doc *openapi.Document) bool { return len(doc.Operations)+len(doc.Lost) == 0 }

// errEmpty is why a document without operations does not replace a document with operations. Such a
// document is more likely the answer of a failing server than the end of an API.
var errEmpty = errors.New("the document has no operations, and had some before: to use it, restart the bridge, and remove what keep_dir saved")

// Read reads all texts. In the first reading, the saved document replaces one that cannot be used or has
// no operations. Later, such a document is an error.
func (r *Reader) Read(ctx context.Context, first bool) (*Reading, error) {
	out := &Reading{}
	if r.o.Location != "" {
		if err := r.readDocument(ctx, first, out); err != nil {
			return nil, err
		}
		out.texts = append(slices.Clone(out.Document.Files), r.o.Overlays...)
	}
	if r.o.Catalog == "" {
		return out, nil
	}
	out.texts = append(out.texts, r.o.Catalog)
	var err error
	if out.Catalog, err = r.readCatalog(ctx); err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	return out, nil
}

// readDocument reads the document of a reading.
func (r *Reader) readDocument(ctx context.Context, first bool, out *Reading) error {
	overlays, err := ReadOverlays(r.o.Overlays)
	if err != nil {
		return err
	}
	var from openapi.Fetcher
	if r.fetch != nil {
		out.live = r.record(first)
		from = out.live
	}
	out.Document, err = r.load(ctx, from, overlays)
	empty := err == nil && isEmpty(out.Document)
	switch {
	case first && r.fetch != nil && (err != nil || empty):
		saved, why := r.readSaved(ctx, cmp.Or(err, errEmpty), overlays)
		if why == nil {
			out.Document, out.Saved, out.live = saved, true, nil // with live nil, the saved texts are not replaced
			return nil
		}
		if empty {
			return nil
		}
		return why
	case empty && r.filled:
		return errEmpty
	}
	return err
}

// record returns a fetcher that records the texts for Accept.
func (r *Reader) record(first bool) *recorder {
	live := &recorder{
		fetcher: r.fetch,
		texts:   map[string][]byte{},
		outside: map[string]bool{},
	}
	if first {
		if _, err := os.Stat(r.o.keptPath()); err == nil {
			live.limit = Patience
		}
	}
	return live
}

func (r *Reader) load(ctx context.Context, from openapi.Fetcher, overlays []*overlay.Overlay) (*openapi.Document, error) {
	return openapi.Load(ctx, openapi.Source{
		Location: r.o.Location,
		Data:     r.o.Data,
		Fetcher:  from,
		Overlays: overlays,
		Folders:  r.o.Folders,
	})
}

// readSaved reads the document saved on disk, in place of a document that is unusable because of why.
// If none is saved, the error is why.
func (r *Reader) readSaved(ctx context.Context, why error, overlays []*overlay.Overlay) (*openapi.Document, error) {
	k, err := r.o.readKept(r.fetch)
	if k == nil {
		if err != nil {
			r.o.Log.Warn("the saved document cannot be read", "err", err)
		}
		return nil, why
	}
	doc, err := r.load(ctx, k, overlays)
	if err != nil {
		return nil, fmt.Errorf("%w; and the document saved in keep_dir cannot be used either: %w", why, err)
	}
	if errors.Is(why, errEmpty) && len(doc.Operations) == 0 {
		return nil, why
	}
	r.o.Log.Warn("the document cannot be used: the last good one stays in use", "err", why, "read", k.Read, "age", time.Since(k.Read).Round(time.Second).String())
	return doc, nil
}

// Accept records that the tools of a reading are put to use, and saves its document.
func (r *Reader) Accept(one *Reading) {
	r.filled = one.Document != nil && len(one.Document.Operations) > 0
	if one.live == nil {
		return
	}
	if err := r.o.keepTexts(one.live); err != nil {
		r.o.Log.Warn("the document cannot be saved in keep_dir", "err", err)
	}
}

// ReadOverlays reads the overlays for a document.
func ReadOverlays(paths []string) ([]*overlay.Overlay, error) {
	var all []*overlay.Overlay
	for _, path := range paths {
		data, err := files.Read(path, overlay.MaxBytes+1)
		if err != nil {
			return nil, fmt.Errorf("overlays: %s: %w", filepath.Base(path), errors.Unwrap(err))
		}
		o, err := overlay.Parse(filepath.Base(path), data)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// MaxCatalog bounds a catalogue, in bytes.
const MaxCatalog = 8 << 20

// readCatalog reads the text of the catalogue.
func (r *Reader) readCatalog(ctx context.Context) ([]byte, error) {
	if address.IsHTTP(r.o.Catalog) {
		data, err := r.fetch.Fetch(ctx, r.o.Catalog)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", address.Shown(r.o.Catalog), err)
		}
		return data, nil
	}
	f, err := os.Open(r.o.Catalog)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, errors.New(r.o.Catalog + " is not a file")
	}
	return io.ReadAll(io.LimitReader(f, MaxCatalog+1)) // whoever parses it refuses a larger one
}

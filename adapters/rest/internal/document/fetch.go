package document

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/address"
)

const (
	fetchLimit  = 30 * time.Second // of one text
	maxDocument = 64 << 20         // bytes of one text
)

// Clients read URLs.
type Clients struct {
	Own     *remote.Client // for the URL of the catalogue
	Guarded *remote.Client // for URLs that the operator need not have named
	Outside *remote.Client // for URLs that the author of a public document named
}

// fetcher reads documents from URLs, and detects changes.
type fetcher struct {
	Clients
	o    *Options
	main string     // the URL of the document; empty if there is none
	from []*url.URL // origins from which texts may be read; that of main is first

	mu     sync.Mutex         // guards seen and public
	seen   map[string]version // by URL
	public map[string]bool    // URLs that were read at a public address
}

// version identifies the state in which a text was read.
type version struct {
	etag, modified string
	sum            [sha256.Size]byte
}

var _ openapi.Fetcher = (*fetcher)(nil)

// newFetcher returns a fetcher. The document may refer only to its own server and to the origins in o,
// so that its author cannot make the bridge read from other servers in the bridge's network.
func newFetcher(o *Options) (*fetcher, error) {
	client, err := remote.New(o.HTTP)
	if err != nil {
		return nil, err
	}
	f := &fetcher{
		Clients: Clients{Own: client, Guarded: client},
		o:       o,
		seen:    map[string]version{},
		public:  map[string]bool{},
	}
	if u, err := url.Parse(o.Location); err == nil && !wire.Blocked(u) {
		guarded := o.HTTP
		guarded.Refuses = remote.LinkLocal
		if f.Guarded, err = remote.New(guarded); err != nil {
			return nil, err
		}
	}
	outside := o.HTTP
	outside.Outside = true
	if f.Outside, err = remote.New(outside); err != nil {
		return nil, err
	}
	origins := o.Origins
	if address.IsHTTP(o.Location) {
		f.main, origins = o.Location, append([]string{o.Location}, origins...)
	}
	for _, o := range origins {
		if u, err := url.Parse(o); err == nil {
			f.from = append(f.from, u)
		}
	}
	return f, nil
}

// Public implements openapi.Fetcher. A URL that was public once stays public, since its host could
// claim another address later.
func (f *fetcher) Public(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.public[address]
}

// Fetch implements openapi.Fetcher. If a text cannot be read, Fetch forgets its version, so that
// changed reports a change once the text can be read.
func (f *fetcher) Fetch(ctx context.Context, address string) ([]byte, error) {
	data, v, err := f.get(ctx, address, version{})
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		delete(f.seen, address)
		return nil, err
	}
	f.seen[address] = v
	return data, nil
}

// changed reports whether a text has changed since Fetch. A text that Fetch could not read has changed
// if it can be read now.
func (f *fetcher) changed(ctx context.Context, address string) (bool, error) {
	f.mu.Lock()
	old, known := f.seen[address]
	f.mu.Unlock()
	if !known {
		_, _, err := f.get(ctx, address, version{})
		return err == nil, nil
	}
	_, v, err := f.get(ctx, address, old)
	if err != nil {
		return false, err
	}
	return v.sum != old.sum, nil
}

// keep forgets the versions of all texts except these.
func (f *fetcher) keep(urls []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.seen, func(address string, _ version) bool { return !slices.Contains(urls, address) })
}

// get reads a URL, and returns the text with its version. If old is still the version of the text,
// get returns no data.
func (f *fetcher) get(ctx context.Context, address string, old version) ([]byte, version, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, old, errors.New("is not a URL")
	}
	if u.User != nil {
		return nil, old, errors.New("has a user or a password in it: remove them, and set openapi_headers: { Authorization: … } in a configuration file")
	}
	var headers map[string]string
	client := f.Guarded
	beside := f.main != "" && remote.SameOrigin(u, f.from[0])
	switch {
	case address == f.o.Catalog:
		client, headers = f.Own, f.o.CatalogHeaders
	case !f.allowed(u):
		return nil, old, fmt.Errorf("%s://%s is not the document's server: add it to trusted to allow reading it", u.Scheme, u.Host)
	case beside:
		headers = f.o.Headers
		if address != f.main && f.Public(f.main) {
			client = f.Outside
		}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	ctx, public := client.FromInternet(ctx, u)
	r := client.Request(ctx, http.MethodGet, u, nil, nil)
	r.Header.Set("Accept", "application/json, application/yaml, */*;q=0.5")
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	if old.etag != "" {
		r.Header.Set("If-None-Match", old.etag)
	}
	if old.modified != "" {
		r.Header.Set("If-Modified-Since", old.modified)
	}
	res, err := client.Do(r)
	if err != nil {
		return nil, old, err
	}
	defer res.Body.Close()
	if public() {
		f.mu.Lock()
		f.public[address] = true
		f.mu.Unlock()
	}
	if res.StatusCode == http.StatusNotModified && old != (version{}) {
		return nil, old, nil
	}
	if refused := res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden; refused && beside && len(headers) == 0 {
		return nil, old, fmt.Errorf("the server answered %s: if it wants a credential, set it in openapi_headers", res.Status)
	}
	if res.StatusCode != http.StatusOK {
		return nil, old, fmt.Errorf("the server answered %s", res.Status)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err != nil {
		return nil, old, err
	}
	if len(data) > maxDocument {
		return nil, old, fmt.Errorf("is larger than %d bytes", maxDocument)
	}
	return data, version{res.Header.Get("ETag"), res.Header.Get("Last-Modified"), sha256.Sum256(data)}, nil
}

// close closes unused connections.
func (f *fetcher) close() {
	f.Own.Close()
	f.Guarded.Close()
	f.Outside.Close()
}

func (f *fetcher) allowed(u *url.URL) bool {
	return slices.ContainsFunc(f.from, func(o *url.URL) bool { return remote.SameOrigin(o, u) })
}

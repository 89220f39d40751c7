package rest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
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

// fetcher reads documents from URLs, and detects changes.
type fetcher struct {
	client  *remote.Client
	guarded *remote.Client    // for URLs that the operator need not have named
	outside *remote.Client    // for URLs that the author of a public document named
	main    string            // the URL of the document; empty if there is none
	from    []*url.URL        // origins from which texts may be read; that of main is first
	own     *Catalog          // has a further URL to read, with headers
	headers map[string]string // for the origin of main

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

// newFetcher returns a fetcher for the document of c. The document may refer only to its own server
// and to trusted servers, so that its author cannot make the bridge read from other servers in the
// bridge's network.
func (c *Config) newFetcher() (*fetcher, error) {
	client, err := remote.New(c.http())
	if err != nil {
		return nil, err
	}
	f := &fetcher{
		client:  client,
		guarded: client,
		own:     &c.Catalog,
		headers: c.OpenAPIHeaders,
		seen:    map[string]version{},
		public:  map[string]bool{},
	}
	if u, err := url.Parse(c.OpenAPI); err == nil && !wire.Blocked(u) {
		guarded := c.http()
		guarded.Refuses = remote.LinkLocal
		if f.guarded, err = remote.New(guarded); err != nil {
			return nil, err
		}
	}
	outside := c.http()
	outside.Outside = true
	if f.outside, err = remote.New(outside); err != nil {
		return nil, err
	}
	origins := c.origins()
	if address.IsHTTP(c.OpenAPI) {
		f.main, origins = c.OpenAPI, append([]string{c.OpenAPI}, origins...)
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
	client := f.guarded
	beside := f.main != "" && remote.SameOrigin(u, f.from[0])
	switch {
	case address == f.own.URL:
		client, headers = f.client, f.own.Headers
	case !f.allowed(u):
		return nil, old, fmt.Errorf("%s://%s is not the document's server: add it to trusted to allow reading it", u.Scheme, u.Host)
	case beside:
		headers = f.headers
		if address != f.main && f.Public(f.main) {
			client = f.outside
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
	f.client.Close()
	f.guarded.Close()
	f.outside.Close()
}

func (f *fetcher) allowed(u *url.URL) bool {
	return slices.ContainsFunc(f.from, func(o *url.URL) bool { return remote.SameOrigin(o, u) })
}

// stamp describes a file. The zero stamp is that of a missing file.
type stamp struct {
	size     int64
	modified time.Time
	path     string // with links resolved, since containers exchange a volume by a link
}

// watched detects changes in the texts of a document.
type watched struct {
	fetch *fetcher
	files map[string]stamp
	urls  []string
}

// unsettled is the age below which the time of a file proves nothing: the file may have been written
// again within the same tick of the clock. A time further in the future was set on purpose.
const unsettled = time.Second

// moment describes files before they are read, so that a file that is replaced during the reading
// counts as changed.
type moment struct {
	at    time.Time
	files map[string]stamp
}

// stampFiles records the state of the texts that are files.
func stampFiles(texts []string) moment {
	m := moment{time.Now(), map[string]stamp{}}
	for _, t := range texts {
		if t != "" && !address.IsHTTP(t) {
			m.files[t] = stampOf(t)
		}
	}
	return m
}

// watch returns the state of a document's texts, which were read after the moment before.
func watch(fetch *fetcher, texts []string, before moment) *watched {
	w := &watched{fetch: fetch, files: map[string]stamp{}}
	for _, t := range texts {
		if address.IsHTTP(t) {
			w.urls = append(w.urls, t)
			continue
		}
		s, known := before.files[t]
		if !known {
			s = stampOf(t)
		}
		if age := before.at.Sub(s.modified); -unsettled < age && age < unsettled {
			s = stamp{size: -1} // differs from every stamp, so that the file is read once more
		}
		w.files[t] = s
	}
	if fetch != nil {
		fetch.keep(w.urls)
	}
	return w
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.Size(), info.ModTime(), real}
}

func (w *watched) filesChanged() bool {
	for path, s := range w.files {
		if stampOf(path) != s {
			return true
		}
	}
	return false
}

// urlsChanged reports whether a URL has changed. If none has, the error is that of the first URL that
// could not be read.
func (w *watched) urlsChanged(ctx context.Context) (bool, error) {
	var first error
	for _, u := range w.urls {
		changed, err := w.fetch.changed(ctx, u)
		if changed {
			return true, nil
		}
		first = cmp.Or(first, err)
	}
	return false, first
}

func (w *watched) texts() []string {
	return append(slices.Sorted(maps.Keys(w.files)), w.urls...)
}

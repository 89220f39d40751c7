package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/internal/oauth/find"
)

// wrong is what is wrong with a document that was fetched: who is sent here may know. What
// else happens when it is fetched, a status too, says something of the network, and is logged
// alone.
type wrong string

func (w wrong) Error() string { return string(w) }

const (
	maxDocument   = 64 << 10
	documentLimit = 5 * time.Second
	documentLeast = time.Minute // for which one counts
	documentMost  = 24 * time.Hour
	faultFor      = 10 * time.Second // for which it is known that there is none
	maxDocuments  = 1000
	formerFor     = time.Hour // for which one is used that cannot be fetched again
	maxFetches    = 16        // at the same time
	maxFetchesOf  = 2         // at the same time, from one host, or for one address
	maxID         = 1 << 10
)

// documents keeps the metadata of clients whose id is the address of it (I-102).
type documents struct {
	client *http.Client
	log    *slog.Logger
	slots  chan struct{}

	mu   sync.Mutex // guards the rest; it is not held while one is fetched
	all  *simplelru.LRU[string, *document]
	busy map[string]int // how many are being fetched from a host, and for an address
}

// document is the metadata of one client, or why there is none.
type document struct {
	done   chan struct{} // closed when the rest is there
	client *client
	err    error
	until  time.Time
	// former is what was there before, and may be used until another time.
	former      *client
	formerUntil time.Time
}

func newDocuments(transport http.RoundTripper, log *slog.Logger) *documents {
	all, _ := simplelru.NewLRU[string, *document](maxDocuments, nil) // the size is positive
	return &documents{
		client: &http.Client{Transport: transport, Timeout: documentLimit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		slots:  make(chan struct{}, maxFetches), log: log, all: all, busy: map[string]int{},
	}
}

// isDocument reports whether the id of a client is the address of its metadata.
func isDocument(id string) bool {
	u, err := url.Parse(id)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.Opaque == "" && u.User == nil && honest(id, u) && len(u.Path) > 1 && !strings.Contains(id, "#") && len(id) <= maxID &&
		!slices.ContainsFunc(strings.Split(u.Path, "/"), func(part string) bool { return part == "." || part == ".." })
}

// get returns the metadata at an address, for somebody. allow is asked before it is fetched.
// Those who want the same at the same time share one request.
func (d *documents) get(ctx context.Context, id, somebody string, allow func() bool, read func([]byte) (*client, error)) (*client, error) {
	u, err := url.Parse(id)
	if err != nil {
		return nil, err
	}
	places := []string{"host " + strings.ToLower(u.Hostname()), "for " + somebody}
	d.mu.Lock()
	one, ok := d.all.Get(id)
	had := one
	if ok {
		select {
		case <-one.done:
			ok = time.Now().Before(one.until)
		default: // it is being fetched
		}
	}
	if !ok {
		one = &document{done: make(chan struct{})}
		if had != nil {
			one.former, one.formerUntil = had.client, had.until.Add(formerFor)
			if had.former != nil {
				one.former, one.formerUntil = had.former, had.formerUntil
			}
		}
		full := slices.ContainsFunc(places, func(p string) bool { return d.busy[p] >= maxFetchesOf })
		if full || !allow() {
			d.mu.Unlock()
			return one.fallback(wrong("too many are fetched for this address, or from its host: try again later"))
		}
		d.all.Add(id, one)
		for _, p := range places {
			d.busy[p]++
		}
		d.mu.Unlock()
		d.fetch(context.WithoutCancel(ctx), id, one, read)
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, p := range places {
			if d.busy[p]--; d.busy[p] == 0 {
				delete(d.busy, p)
			}
		}
		return one.client, one.err
	}
	d.mu.Unlock()
	select {
	case <-one.done:
		return one.client, one.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fallback returns the former document where there is one still, or why there is none.
func (d *document) fallback(err error) (*client, error) {
	if d.former != nil && time.Now().Before(d.formerUntil) {
		return d.former, nil
	}
	return nil, err
}

// errFetch says that an answer is no document, but that there may be one still.
type errFetch int

func (e errFetch) Error() string { return fmt.Sprintf("the answer is HTTP %d", int(e)) }

// lasts reports whether what has gone wrong says nothing of the document: that it could not
// be fetched just then.
func lasts(err error) bool {
	if status, ok := errors.AsType[errFetch](err); ok {
		return status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
	}
	_, ok := errors.AsType[wrong](err)
	return ok
}

// fetch fetches one.
func (d *documents) fetch(ctx context.Context, id string, one *document, read func([]byte) (*client, error)) {
	defer close(one.done)
	one.until = time.Now().Add(faultFor)
	defer func() {
		if one.err == nil || lasts(one.err) {
			one.former = nil
			return
		}
		why := one.err
		if one.client, one.err = one.fallback(why); one.err == nil {
			d.log.Warn("the metadata of a client cannot be fetched: for up to an hour, what was there before counts", "client", fmt.Sprintf("%.200q", id), "err", why)
		}
	}()
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	default:
		one.err, one.until = errors.New("too many are being fetched: try again later"), time.Now()
		return
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		one.err = err
		return
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "mcp-bridge")
	res, err := d.client.Do(r)
	if err != nil {
		one.err = find.Reason(err)
		return
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case err != nil:
		one.err = find.Reason(err)
	case res.StatusCode != http.StatusOK:
		one.err = errFetch(res.StatusCode)
	case len(data) > maxDocument:
		one.err = wrong("it is larger than 64 KiB")
	case kind != "application/json" && !strings.HasSuffix(kind, "+json"):
		one.err = wrong("it is not sent as application/json")
	default:
		if one.client, one.err = read(data); one.err == nil {
			one.until = time.Now().Add(age(res.Header.Get("Cache-Control")))
		}
	}
}

// age returns how long a document counts that came with that Cache-Control.
func age(control string) time.Duration {
	for part := range strings.SplitSeq(control, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seconds, err := strconv.ParseUint(value, 10, 31); err == nil && strings.EqualFold(name, "max-age") {
			return min(max(time.Duration(seconds)*time.Second, documentLeast), documentMost)
		}
	}
	return documentLeast
}

// described reads the metadata of the client of that id.
func (f *Front) described(id string) func(data []byte) (*client, error) {
	return func(data []byte) (*client, error) {
		var m struct {
			ID        string   `json:"client_id"`
			Name      string   `json:"client_name"`
			Redirects []string `json:"redirect_uris"`
			Method    string   `json:"token_endpoint_auth_method"`
		}
		switch err := json.Unmarshal(data, &m); {
		case err != nil:
			return nil, wrong("it is no JSON object with client_id, client_name and redirect_uris")
		case m.ID != id:
			return nil, wrong("its client_id is another one")
		case m.Method != "" && m.Method != "none":
			return nil, wrong("its token_endpoint_auth_method is not none: this server knows public clients only")
		}
		redirects, ok := f.redirects(m.Redirects)
		if !ok || len(redirects) == 0 {
			return nil, wrong("its redirect_uris must be at most 8, each https, or http on loopback, without user, fragment, code, state, iss and error")
		}
		return &client{Name: clip(m.Name), Redirects: redirects}, nil
	}
}

// known returns a client that asks for a sign-in. The error is for its user.
func (f *Front) known(r *http.Request, id string) (*client, error) {
	if !isDocument(id) {
		if c := f.registered(id); c != nil {
			return c, nil
		}
		return nil, errors.New("it is not registered here, or was registered with a key that this server does not have any more: let it register again")
	}
	from := network(f.o.From(r))
	c, err := f.docs.get(r.Context(), id, from, func() bool { return f.fetching.take(from) == 0 }, f.described(id))
	if err != nil {
		f.o.Log.Info("the metadata of a client cannot be used", "client", fmt.Sprintf("%.200q", id), "err", err)
		if told, ok := errors.AsType[wrong](err); ok {
			return nil, fmt.Errorf("its metadata cannot be used: %w", told)
		}
		return nil, errors.New("its metadata cannot be fetched")
	}
	return c, nil
}

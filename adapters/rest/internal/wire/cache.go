package wire

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cache holds answers to GET requests without a body. Its key has everything that was sent. The
// caller's own headers are in the key, so that no caller gets the answer for another caller, and
// every header counts as if Vary named it. The credentials are in the key, since operations with the
// same address may have different ones, or none.
type cache struct {
	mu      sync.Mutex // guards entries and bytes
	entries simplelru.LRUCache[cacheKey, *cached]
	bytes   int // of all entries
	limit   int // of bytes
}

// cacheKey identifies a request: its address, and the headers and credentials sent with it.
type cacheKey struct{ url, sent string }

// cached is an answer in the cache.
type cached struct {
	answer *answer
	until  time.Time // the answer is fresh before this time
	size   int       // bytes
}

const (
	maxCached   = 10000 // entries
	cachedExtra = 512   // bytes of an entry besides its texts
)

func newCache(limit int) *cache {
	c := &cache{limit: limit}
	l, err := simplelru.NewLRU(maxCached, func(_ cacheKey, k *cached) { c.bytes -= k.size })
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	c.entries = l
	return c
}

// keyOf returns the key of a request.
func keyOf(p *Plan) cacheKey {
	h := p.Header
	names := slices.AppendSeq(make([]string, 0, len(h)), maps.Keys(h))
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		b.WriteString(name)
		for _, v := range h[name] {
			b.WriteString(":" + strconv.Itoa(len(v)) + ":" + v)
		}
		b.WriteByte('\n')
	}
	if p.settings.KeepFor > 0 { // tools may keep the same answer for different times
		b.WriteString(p.settings.KeepFor.String() + "\n")
	}
	for _, u := range p.uses {
		number := uint64(0)
		if u.tokens != nil {
			number = u.tokens.number
		}
		fmt.Fprintf(&b, "%s %q %q %d %q\n", u.place, u.name, u.value, number, u.scopes)
		if s := p.subject; u.from.Exchange != "" && s != nil { // no caller gets the answer for another caller's token
			fmt.Fprintf(&b, "%q %q %q\n", s.Principal, s.Issuer, s.Token)
		}
	}
	return cacheKey{p.URL.String(), b.String()}
}

// get returns the entry of a request and whether it is fresh. The entry is nil if there is none.
func (c *cache) get(p *Plan, now time.Time) (k *cached, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.entries.Get(keyOf(p))
	return k, ok && now.Before(k.until)
}

// put stores an answer if the headers allow that, the status is 200, and the answer is complete, no
// stream, and not larger than a quarter of the cache. now is when the request was sent.
func (c *cache) put(p *Plan, a *answer, now time.Time) {
	until, ok := freshness(a.header, now, p.settings.KeepFor)
	key := keyOf(p)
	size := len(a.body) + len(key.url) + len(key.sent) + cachedExtra
	for name, values := range a.header {
		size += len(name) + len(strings.Join(values, ""))
	}
	if !ok || a.status != http.StatusOK || a.more || a.streamed || size > c.limit/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Remove(key) // Add replaces a value without reporting the old one
	c.entries.Add(key, &cached{
		answer: a,
		until:  until,
		size:   size,
	})
	for c.bytes += size; c.bytes > c.limit; {
		c.entries.RemoveOldest()
	}
}

// renew stores a stale answer again, after the server confirmed it with status 304 and the header h.
// It returns the answer with the new headers.
func (c *cache) renew(p *Plan, k *cached, h http.Header, now time.Time) *answer {
	a := *k.answer
	a.header = a.header.Clone()
	for _, name := range []string{"Cache-Control", "Etag", "Expires", "Date", "Age", "Last-Modified", "Vary"} {
		if v, ok := h[name]; ok {
			a.header[name] = v
		}
	}
	c.put(p, &a, now)
	return &a
}

// forget drops all answers of an address, after a request that may have changed it (RFC 9111, 4.4).
func (c *cache) forget(u *url.URL) {
	at := u.String()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range c.entries.Keys() {
		if key.url == at {
			c.entries.Remove(key)
		}
	}
}

// freshness returns until when an answer is fresh, and whether it may be stored. If the header does
// not say how long, the answer is fresh for the duration unsaid.
func freshness(h http.Header, now time.Time, unsaid time.Duration) (until time.Time, ok bool) {
	age, told := time.Duration(0), false
	for _, line := range h["Cache-Control"] {
		for directive := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
			switch strings.ToLower(name) {
			case "no-store":
				return now, false
			case "no-cache":
				age, told = 0, true
			case "max-age":
				if n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31); err == nil && !told {
					age, told = time.Duration(n)*time.Second, true
				}
			}
		}
	}
	for _, v := range h["Vary"] {
		if strings.Contains(v, "*") {
			return now, false
		}
	}
	switch at, err := http.ParseTime(h.Get("Expires")); {
	case told:
	case err == nil:
		from := now
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			from = date
		}
		age = at.Sub(from)
	case h.Get("Expires") == "": // an unreadable date counts as past
		age = unsaid
	}
	if n, err := strconv.ParseUint(strings.TrimSpace(h.Get("Age")), 10, 31); err == nil {
		age -= time.Duration(n) * time.Second
	}
	until = now.Add(max(age, 0))
	return until, age > 0 || h.Get("Etag") != "" || h.Get("Last-Modified") != ""
}

// conditional returns the request with the validators of a stale entry: its ETag and its date.
func (c *cached) conditional(p *Plan) *Plan {
	q := *p
	q.Header = p.Header.Clone()
	if tag := c.answer.header.Get("Etag"); tag != "" {
		q.Header.Set("If-None-Match", tag)
	}
	if at := c.answer.header.Get("Last-Modified"); at != "" {
		q.Header.Set("If-Modified-Since", at)
	}
	return &q
}

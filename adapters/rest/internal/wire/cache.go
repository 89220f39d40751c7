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

	lru "github.com/hashicorp/golang-lru/v2"
)

// cache keeps answers to GET without a body. What was sent with a request, the caller's own
// headers included, is a part of the key: so nobody gets what was for somebody
// else, and Vary holds whatever it names. So are the source's own credentials:
// operations whose addresses are the same may have others, or none.
type cache struct {
	mu    sync.Mutex // guards all below
	byURL *lru.Cache[string, []*kept]
	bytes int
	limit int
}

// kept is an answer that is kept.
type kept struct {
	sent   string // the headers and credentials of the request
	answer *answer
	until  time.Time // fresh before this
	size   int
}

const (
	maxKept     = 10000 // addresses
	maxVariants = 16    // of one address
	keptRoom    = 512   // what an entry takes beside its texts
)

func newCache(limit int) *cache {
	c := &cache{limit: limit}
	l, err := lru.NewWithEvict(maxKept, func(_ string, list []*kept) {
		for _, k := range list {
			c.bytes -= k.size
		}
	})
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	c.byURL = l
	return c
}

// sentKey writes what goes with a request, beside its address, as a key.
func sentKey(p *Plan) string {
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
	if p.settings.KeepFor > 0 { // others keep the same for another time
		b.WriteString(p.settings.KeepFor.String() + "\n")
	}
	for _, u := range p.uses {
		fmt.Fprintf(&b, "%s %q %q %p %q\n", u.place, u.name, u.value, u.tokens, u.scopes)
		if s := p.subject; u.from.Exchange != "" && s != nil { // what is given to the token of one caller is no other's
			fmt.Fprintf(&b, "%q %q %q\n", s.Principal, s.Issuer, s.Token)
		}
	}
	return b.String()
}

// get returns what is kept for a request, and whether it is fresh.
func (c *cache) get(p *Plan, now time.Time) (k *kept, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, _ := c.byURL.Get(p.URL.String())
	key := sentKey(p)
	for _, k := range list {
		if k.sent == key {
			return k, now.Before(k.until)
		}
	}
	return nil, false
}

// put keeps an answer if it may be kept.
func (c *cache) put(p *Plan, a *answer, now time.Time) {
	until, ok := freshness(a.header, now, p.settings.KeepFor)
	key, at := sentKey(p), p.URL.String()
	size := len(a.body) + len(key) + len(at) + keptRoom
	for name, values := range a.header {
		size += len(name) + len(strings.Join(values, ""))
	}
	if !ok || a.status != http.StatusOK || a.more || a.streamed || size > c.limit/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list, _ := c.byURL.Peek(at)
	list = slices.Clone(list)
	list = slices.DeleteFunc(list, func(k *kept) bool {
		if k.sent == key {
			c.bytes -= k.size
		}
		return k.sent == key
	})
	if len(list) >= maxVariants {
		c.bytes -= list[0].size
		list = list[1:]
	}
	c.byURL.Add(at, append(list, &kept{sent: key, answer: a, until: until, size: size}))
	for c.bytes += size; c.bytes > c.limit; {
		if _, _, ok := c.byURL.RemoveOldest(); !ok {
			break
		}
	}
}

// renew notes that what is kept is still right.
func (c *cache) renew(p *Plan, k *kept, h http.Header, now time.Time) *answer {
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

// forget drops what is kept of an address that was written to (RFC 9111, 4.4).
func (c *cache) forget(u *url.URL) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byURL.Remove(u.String())
}

// freshness says whether an answer may be kept, and until when it is fresh: for
// so long as unsaid if it does not say itself.
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
	case h.Get("Expires") == "": // what cannot be read is in the past
		age = unsaid
	}
	if n, err := strconv.ParseUint(strings.TrimSpace(h.Get("Age")), 10, 31); err == nil {
		age -= time.Duration(n) * time.Second
	}
	until = now.Add(max(age, 0))
	return until, age > 0 || h.Get("Etag") != "" || h.Get("Last-Modified") != ""
}

// ask makes a request conditional on what is kept.
func (k *kept) ask(p *Plan) *Plan {
	q := *p
	q.Header = p.Header.Clone()
	if tag := k.answer.header.Get("Etag"); tag != "" {
		q.Header.Set("If-None-Match", tag)
	}
	if at := k.answer.header.Get("Last-Modified"); at != "" {
		q.Header.Set("If-Modified-Since", at)
	}
	return &q
}

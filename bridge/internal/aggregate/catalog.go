package aggregate

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"github.com/yosida95/uritemplate/v3"

	"github.com/mcp-bridge/bridge/internal/list"
)

// catalog holds what one server has listed for one principal: what there is,
// after filters and new names, and under which name clients see it. All of the
// principal's sessions write to it, so it may know things that are gone; it is
// asked where something is, and never whether it may be used.
type catalog struct {
	slow slow

	mu   sync.Mutex // guards each
	each [list.Kinds]listing
}

// listing is what is known of one kind.
type listing struct {
	whole bool              // all pages have been seen at least once
	names map[string]string // the server's name or URI, by the one that clients see
	match []template        // of templates, in the order of the list
}

type template struct {
	text string
	t    *uritemplate.Template
}

const (
	maxCatalog  = 20_000   // bounds what is remembered of one kind
	maxTemplate = 1 << 10  // bytes of a template that a resource can be one of; of longer ones the regular expression may be too large
	maxMatched  = 64 << 10 // bytes of a URI that is compared with templates
)

// learn takes a page of a list. expose gives the name under which clients see
// an item; first and last say whether it is the first page and the last one.
func (c *catalog) learn(k list.Kind, page []byte, expose func(key string) string, first, last bool) {
	fresh := map[string]string{}
	var match []template
	k.Each(page, func(_ []byte, key string) {
		if len(fresh) >= maxCatalog {
			return
		}
		fresh[expose(key)] = key
		if k == list.Templates && len(key) <= maxTemplate {
			if t, err := uritemplate.New(key); err == nil {
				match = append(match, template{key, t})
			}
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.each[k]
	switch {
	case first && last:
		*l = listing{whole: true, names: fresh, match: match}
		return
	case l.names == nil || len(l.names)+len(fresh) > maxCatalog:
		*l = listing{names: map[string]string{}}
	}
	for external, own := range fresh {
		if _, known := l.names[external]; !known && k == list.Templates {
			for _, t := range match {
				if t.text == own {
					l.match = append(l.match, t)
				}
			}
		}
		l.names[external] = own
	}
	l.whole = l.whole || last
}

// internal returns the server's name or URI of what clients call external.
func (c *catalog) internal(k list.Kind, external string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, ok := c.each[k].names[external]
	return own, ok
}

// behind returns the server's name of what clients would call external if the server had
// that prefix.
func (c *catalog) behind(k list.Kind, prefix, external string) (string, bool) {
	if !strings.HasPrefix(external, prefix) && !hashed(external) {
		return "", false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, own := range c.each[k].names {
		if externalName(prefix, own) == external {
			return own, true
		}
	}
	return "", false
}

// listed reports whether the whole list has been seen.
func (c *catalog) listed(k list.Kind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.each[k].whole
}

// matches reports whether a resource can be one of the server's templates. The
// URI is a client's: the time that a regular expression takes grows with its
// length, that of the library's own Match with the square.
func (c *catalog) matches(uri string) bool {
	if len(uri) > maxMatched {
		return false
	}
	c.mu.Lock()
	match := c.each[list.Templates].match
	c.mu.Unlock()
	return slices.ContainsFunc(match, func(t template) bool { return t.t.Regexp().MatchString(uri) })
}

// like reports whether the server has listed anything whose URI begins as that
// one does, up to the colon.
func (c *catalog) like(uri string) bool {
	scheme, _, ok := strings.Cut(uri, ":")
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range []list.Kind{list.Resources, list.Templates} {
		for external := range c.each[k].names {
			if s, _, ok := strings.Cut(external, ":"); ok && s == scheme {
				return true
			}
		}
	}
	return false
}

// maxCatalogs bounds the principals whose catalogues one server keeps.
const maxCatalogs = 256

// catalog returns the server's catalogue for the principal.
func (s *server) catalog(principal string) *catalog {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.catalogs[principal]
	if c == nil {
		for other := range s.catalogs {
			if len(s.catalogs) < maxCatalogs {
				break
			}
			delete(s.catalogs, other) // it is filled again when it is needed
		}
		c = &catalog{}
		s.catalogs[principal] = c
	}
	return c
}

// maxName is the length that model providers allow a tool's name.
const maxName = 64

// externalName returns the name under which clients see what the server calls name,
// where several servers are offered as one. It is always the same for the same
// prefix and name: as it is behind the prefix if that is a name that model
// providers take, and otherwise with what they do not take replaced, cut, and
// made unmistakable by a hash of the whole.
func externalName(prefix, name string) string {
	full := prefix + name
	odd := func(r rune) rune {
		if r == '_' || r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}
	clean := strings.Map(odd, full)
	if clean == full && len(full) <= maxName && name != "" {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	hash := "_" + hex.EncodeToString(sum[:4])
	return clean[:min(len(clean), maxName-len(hash))] + hash
}

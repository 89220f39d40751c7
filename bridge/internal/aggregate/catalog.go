package aggregate

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/yosida95/uritemplate/v3"

	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/spelling"
)

// catalog holds the lists of one server for one principal, after filters and renames, by external name. All sessions
// of the principal write to it, so a catalog may hold removed items. A catalog tells which server has an item, never
// whether the principal may use the item.
type catalog struct {
	slow slow

	mu   sync.Mutex // guards the field each
	each [list.Kinds]listing
}

// listing is one list of a server.
type listing struct {
	whole   bool                // all pages were read at least once
	names   map[string]string   // the server's own name or URI, by external name
	spelled map[string]struct{} // the canonical spellings of the URIs that the server spells otherwise
	match   []template          // the list's templates, in the order of the list
}

type template struct {
	text string
	t    *uritemplate.Template
}

const (
	maxCatalog  = 20_000   // entries of one listing
	maxTemplate = 1 << 10  // bytes of a template that is compared with URIs; a longer one would have too large a regular expression
	maxMatched  = 64 << 10 // bytes of a URI that is compared with templates
)

// learn stores a page of a list. expose returns an item's external name. first and last mark the first and the last
// page. A page that is both replaces all items of the list. Any other page adds its items, but if the list would then
// have more than maxCatalog, the page replaces all items.
func (c *catalog) learn(k list.Kind, page []byte, expose func(key string) string, first, last bool) {
	fresh, spelled := map[string]string{}, map[string]struct{}{}
	var match []template
	k.Each(page, func(_ []byte, key string) {
		if len(fresh) >= maxCatalog {
			return
		}
		fresh[expose(key)] = key
		if k == list.Resources {
			if canonical := spelling.Canonical(key); canonical != key {
				spelled[canonical] = struct{}{}
			}
		}
		if k == list.Templates && len(key) <= maxTemplate {
			if t, err := uritemplate.New(spelling.CanonicalTemplate(key)); err == nil {
				match = append(match, template{key, t})
			}
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.each[k]
	switch {
	case first && last:
		*l = listing{
			whole:   true,
			names:   fresh,
			spelled: spelled,
			match:   match,
		}
		return
	case l.names == nil || len(l.names)+len(fresh) > maxCatalog:
		*l = listing{names: map[string]string{}, spelled: map[string]struct{}{}}
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
	maps.Copy(l.spelled, spelled)
	l.whole = l.whole || last
}

// forget removes all items, because their external names have changed.
func (c *catalog) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.each = [list.Kinds]listing{}
}

// forget removes all items of the server's catalogues.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.catalogs {
		c.forget()
	}
}

// internal returns the server's own name or URI for an external name or URI.
func (c *catalog) internal(k list.Kind, external string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, ok := c.each[k].names[external]
	return own, ok
}

// lists reports whether the server lists a resource, in any spelling of its URI.
func (c *catalog) lists(canonical string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.each[list.Resources]
	_, plain := l.names[canonical]
	_, spelled := l.spelled[canonical]
	return plain || spelled
}

// behind returns the server's own name that clients would see as external if the server had that prefix.
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

// listed reports whether the whole list was read.
func (c *catalog) listed(k list.Kind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.each[k].whole
}

// matches reports whether a resource fits one of the server's templates. A URI above maxMatched matches none. The
// regular expression takes time linear in the length of the client's URI; the template library's own search is
// quadratic.
func (c *catalog) matches(canonical string) bool {
	if len(canonical) > maxMatched {
		return false
	}
	c.mu.Lock()
	match := c.each[list.Templates].match
	c.mu.Unlock()
	return slices.ContainsFunc(match, func(t template) bool { return t.t.Regexp().MatchString(canonical) })
}

// hasScheme reports whether the server lists a URI with the scheme of uri.
func (c *catalog) hasScheme(uri string) bool {
	scheme, _, ok := strings.Cut(uri, ":")
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range []list.Kind{list.Resources, list.Templates} {
		for external := range c.each[k].names {
			if s, _, ok := strings.Cut(external, ":"); ok && strings.EqualFold(s, scheme) {
				return true
			}
		}
	}
	return false
}

// maxCatalogs bounds the catalogues of a server, one for each principal. Beyond that number, the server drops an
// arbitrary catalogue, and reads the lists again on demand.
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
			delete(s.catalogs, other) // fetch fills the catalog again
		}
		c = &catalog{}
		s.catalogs[principal] = c
	}
	return c
}

// maxName is the longest tool name that model providers accept.
const maxName = 64

// externalName returns the name under which clients of the aggregate see name. The external name depends only on
// prefix and name. If model providers accept prefix+name, the external name is prefix+name. Otherwise externalName
// replaces invalid characters, cuts the name, and appends a hash of the whole.
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

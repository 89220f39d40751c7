package tools

import (
	"cmp"
	"slices"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// ownCache is the size of the cache, in bytes, if Settings.Cache is 0 and tools want a cache.
const ownCache = 8 << 20

// setMaskingAndCache sets for each tool the masked parts of requests, the bound of answers, and whether
// answers are cached. Without Settings.Cache, only answers of tools that want a cache are cached.
func (s *Settings) setMaskingAndCache(tools []*toolset.Tool) {
	for _, t := range tools {
		t.Conceal(s.Secrets)
		t.Settings.MaxAnswer = min(t.Settings.MaxAnswer, s.MaxMessage/4)
		t.Settings.Uncached = s.Cache == 0
		if e := cmp.Or(t.Entry, t.Published); e != nil && e.Cache != nil {
			t.Settings.Uncached = !*e.Cache
		}
	}
}

// cacheBytes returns the size of the cache, in bytes.
func (s *Settings) cacheBytes() int {
	own := func(e *toolset.Entry) bool { return e.Cache != nil && *e.Cache }
	if s.Cache == 0 && slices.ContainsFunc(s.eachEntry(), own) {
		return ownCache
	}
	return s.Cache
}

// secrets returns the probable secrets in the entries of the configuration and of a catalogue.
func (s *Settings) secrets(tools []*toolset.Tool) []string {
	var all []string
	for _, e := range s.eachEntry() {
		all = append(all, e.Secrets()...)
	}
	for _, t := range tools {
		all = append(all, t.Secrets()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

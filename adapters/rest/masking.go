package rest

import (
	"cmp"
	"slices"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// ownCache is the size of the cache, in bytes, if Config.Cache is 0 and tools want a cache.
const ownCache = 8 << 20

// setMaskingAndCache sets for each tool the masked parts of requests, the bound of answers, and whether
// answers are cached. Without Config.Cache, only answers of tools that want a cache are cached.
func (c *Config) setMaskingAndCache(tools []*toolset.Tool, o *Options) {
	for _, t := range tools {
		t.Conceal(c.Secrets)
		t.Settings.MaxAnswer = min(t.Settings.MaxAnswer, o.maxMessage()/4)
		t.Settings.Uncached = c.Cache == 0
		if e := cmp.Or(t.Entry, t.Published); e != nil && e.Cache != nil {
			t.Settings.Uncached = !*e.Cache
		}
	}
}

// cacheBytes returns the size of the cache, in bytes.
func (c *Config) cacheBytes() int {
	own := func(e *toolset.Entry) bool { return e.Cache != nil && *e.Cache }
	if c.Cache == 0 && slices.ContainsFunc(c.entries(), own) {
		return ownCache
	}
	return int(c.Cache)
}

// entries returns all entries and rules for tools.
func (c *Config) entries() []*toolset.Entry {
	var all []*toolset.Entry
	for i := range c.Tools {
		all = append(all, &c.Tools[i])
	}
	for i := range c.Rules {
		all = append(all, &c.Rules[i].Entry)
	}
	return all
}

// secrets returns the probable secrets in the entries of the configuration and of a catalogue.
func (c *Config) secrets(tools []*toolset.Tool) []string {
	var all []string
	for _, e := range c.entries() {
		all = append(all, e.Secrets()...)
	}
	for _, t := range tools {
		all = append(all, t.Secrets()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

package rest

import (
	"cmp"
	"slices"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// ownCache is how much is kept of the answers to tools that ask for it, where
// Config.Cache does not say how much.
const ownCache = 8 << 20

// keep settles what of requests nobody is shown, and whose answers are kept:
// without Config.Cache, only those of tools that ask for it. What is kept, or told,
// of one is bounded by what a message may have.
func (c *Config) keep(tools []*toolset.Tool, o *Options) {
	for _, t := range tools {
		t.Conceal(c.Secrets)
		t.Settings.MaxAnswer = min(t.Settings.MaxAnswer, o.maxMessage()/4)
		t.Settings.Uncached = c.Cache == 0
		if e := cmp.Or(t.Entry, t.Published); e != nil && e.Cache != nil {
			t.Settings.Uncached = !*e.Cache
		}
	}
}

// cacheBytes is how much of answers is kept.
func (c *Config) cacheBytes() int {
	own := func(t *toolset.Entry) bool { return t.Cache != nil && *t.Cache }
	if c.Cache == 0 && slices.ContainsFunc(c.entries(), own) {
		return ownCache
	}
	return int(c.Cache)
}

// entries returns all that is said of tools, by entries and by rules.
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

// secrets returns those of all entries: of the configuration, and of a catalogue.
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

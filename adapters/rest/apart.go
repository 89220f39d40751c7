package rest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// maxApart is how many origins are named in one message.
const maxApart = 10

// compare looks at where an edition has its operations. It says what the
// configuration keeps from there, and when the API has moved. The error is that a
// document at a URL, read again, names an origin that it did not name before, and
// that is not the operator's: then the tools stay as they were, whether anything
// would be kept from there or not, because arguments are not for everybody either.
func (a *Adapter) compare(first bool, e *edition, m *material) error {
	reach := e.source.Reach()
	e.home = reach.Home()
	refused, misplaced := map[string]int{}, map[string]int{}
	note := func(t *toolset.Tool) {
		if origin := reach.Refused(t.Operation); origin != "" {
			misplaced[origin]++
		}
		if origin, kept := reach.Stranger(t.Operation, t.Settings); origin != "" {
			e.apart = append(e.apart, origin)
			if kept {
				refused[origin]++
			}
		}
	}
	for _, t := range e.tools {
		note(t)
	}
	for _, r := range m.resources {
		note(r.Tool)
	}
	var tokens []string
	e.tokens, tokens = reach.Tokens()
	e.apart = append(e.apart, tokens...)
	slices.Sort(e.apart)
	e.apart = slices.Compact(e.apart)
	if !first {
		if err := a.moved(e); err != nil {
			return err
		}
	}
	for i, origin := range slices.Sorted(maps.Keys(misplaced)) {
		if i == maxApart {
			break
		}
		a.o.Log.Warn(wire.Misplaced, "origin", origin, "operations", misplaced[origin])
		delete(refused, origin)
	}
	for i, origin := range slices.Sorted(maps.Keys(refused)) {
		if i == maxApart {
			a.o.Log.Warn("the document is at another origin than more of its servers", "origins", len(refused)-i)
			break
		}
		a.o.Log.Warn("the document comes from another origin than the one that it names: credentials and headers do not go there, and calls that need them are refused; set base_url, or add the origin to trusted",
			"origin", origin, "operations", refused[origin])
	}
	for _, origin := range tokens {
		a.o.Log.Warn("the document has tokens come from another origin than its own: the client's secret does not go there, and calls that need a token are refused; set token_url, or add the origin to trusted", "origin", origin)
	}
	return nil
}

// moved compares an edition with the one before.
func (a *Adapter) moved(e *edition) error {
	a.mu.Lock()
	old := a.now
	a.mu.Unlock()
	added := slices.DeleteFunc(slices.Clone(e.apart), func(origin string) bool { return slices.Contains(old.apart, origin) })
	if len(added) > 0 {
		more := ""
		if len(added) > maxApart {
			added, more = added[:maxApart], fmt.Sprintf(" and %d more", len(added)-maxApart)
		}
		return fmt.Errorf("the document names another server than before: %s%s. If that is meant, set base_url, or add it to trusted, and start the bridge again", strings.Join(added, ", "), more)
	}
	if e.home != old.home {
		a.o.Log.Warn("the document names another server for the API: calls and credentials go there from now on", "server", e.home, "before", old.home)
	}
	if !slices.Equal(e.tokens, old.tokens) {
		a.o.Log.Warn("the document names another server for tokens than before", "servers", e.tokens, "before", old.tokens)
	}
	return nil
}

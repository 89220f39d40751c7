package calls

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// maxOrigins bounds the origins that a message lists.
const maxOrigins = 10

// compare checks the servers of an edition's operations. It logs the origins to which credentials do
// not go, and a change of the API's server. old is the edition before, or nil. If a document at a URL names
// an origin that old lacks and the operator has not chosen, compare returns an error. The tools then stay as
// they were, even without credentials, since arguments are not for every server either.
func (e *Edition) compare(old *Edition, m *tools.Made, log *slog.Logger) error {
	reach := e.source.Reach()
	e.home = reach.Home()
	refused, misplaced := map[string]int{}, map[string]int{}
	note := func(t *toolset.Tool) {
		if origin := reach.Refused(t.Operation); origin != "" {
			misplaced[origin]++
		}
		if origin, kept := reach.Untrusted(t.Operation, t.Settings); origin != "" {
			e.untrusted = append(e.untrusted, origin)
			if kept {
				refused[origin]++
			}
		}
	}
	for _, t := range m.Tools {
		note(t)
	}
	for _, r := range m.Resources {
		note(r.Tool)
	}
	var tokens []string
	e.tokens, tokens = reach.Tokens()
	e.untrusted = append(e.untrusted, tokens...)
	slices.Sort(e.untrusted)
	e.untrusted = slices.Compact(e.untrusted)
	if old != nil {
		if err := e.moved(old, log); err != nil {
			return err
		}
	}
	for i, origin := range slices.Sorted(maps.Keys(misplaced)) {
		if i == maxOrigins {
			break
		}
		log.Warn(wire.Misplaced, "origin", origin, "operations", misplaced[origin])
		delete(refused, origin)
	}
	for i, origin := range slices.Sorted(maps.Keys(refused)) {
		if i == maxOrigins {
			log.Warn("the document names further servers at other origins", "origins", len(refused)-i)
			break
		}
		log.Warn("the document names a server at another origin than its own: credentials and headers do not go there, and calls that need them are refused; set base_url, or add the origin to trusted",
			"origin", origin, "operations", refused[origin])
	}
	for _, origin := range tokens {
		log.Warn("the document names a token endpoint at another origin than its own: the client's secret does not go there, and calls that need a token are refused; set token_url, or add the origin to trusted", "origin", origin)
	}
	return nil
}

// moved compares an edition with the one before. It logs another server of the API or of tokens. The
// error says that there is a new untrusted origin.
func (e *Edition) moved(old *Edition, log *slog.Logger) error {
	added := slices.DeleteFunc(slices.Clone(e.untrusted), func(origin string) bool { return slices.Contains(old.untrusted, origin) })
	if len(added) > 0 {
		more := ""
		if len(added) > maxOrigins {
			added, more = added[:maxOrigins], fmt.Sprintf(" and %d more", len(added)-maxOrigins)
		}
		return fmt.Errorf("the document names another server than before: %s%s; to allow it, set base_url or add it to trusted, and restart the bridge", strings.Join(added, ", "), more)
	}
	if e.home != old.home {
		log.Warn("the document names another server for the API: calls and credentials go there from now on", "server", e.home, "before", old.home)
	}
	if !slices.Equal(e.tokens, old.tokens) {
		log.Warn("the document names another server for tokens than before", "servers", e.tokens, "before", old.tokens)
	}
	return nil
}

package access

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/auth/token"
)

// tokenUse holds the parts of tokens that the configuration reads. It is immutable: a new
// configuration has a new one.
type tokenUse struct {
	configs  [2]*config.Config // the current configuration; and the next one, or nil
	claims   []string          // that servers get
	scoped   bool              // some server needs scopes
	tokens   bool              // some server exchanges the tokens of callers
	known    map[string]bool   // the scopes that the configuration names
	oldNames map[string][]names
}

// maxOldNames bounds the old settings of a server whose names are stored. For oldPrefixTTL, names
// with an old prefix need the server's scopes. bridge/internal/aggregate resolves such names for a
// shorter time.
const (
	maxOldNames  = 8
	oldPrefixTTL = 6 * time.Minute
)

// tokenUse returns the parts of tokens that the current and the next configuration read.
func (a *Access) tokenUse() *tokenUse {
	// The next configuration is read first: it applies before the current one ends.
	of := [2]*config.Config{1: a.pending.Load()}
	of[0] = a.c()
	was := a.use.Load()
	if was != nil && was.configs == of {
		return was
	}
	now := &tokenUse{
		configs:  of,
		known:    map[string]bool{},
		oldNames: map[string][]names{},
	}
	if was != nil { // a server with old settings still serves its sessions
		now.claims, now.oldNames = slices.Clone(was.claims), maps.Clone(was.oldNames)
	}
	for _, c := range of {
		if c != nil {
			now.add(c)
		}
	}
	now.expire(time.Now().Add(oldPrefixTTL))
	a.use.Store(now)
	return now
}

// expire lets prefixes that are no longer configured expire at until, unless they already have a time to expire.
func (t *tokenUse) expire(until time.Time) {
	type named struct{ name, prefix string }
	configured := map[named]bool{}
	for _, c := range t.configs {
		if c == nil {
			continue
		}
		for i := range c.Servers {
			configured[named{c.Servers[i].Name, c.Servers[i].Prefix}] = true
		}
	}
	for name, all := range t.oldNames {
		all = slices.Clone(all)
		for i := range all {
			switch {
			case configured[named{name, all[i].Prefix}]:
				all[i].Until = time.Time{}
			case all[i].Until.IsZero():
				all[i].Until = until
			}
		}
		t.oldNames[name] = all
	}
}

// add adds the parts of tokens that a configuration reads.
func (t *tokenUse) add(c *config.Config) {
	know := func(scopes []string) {
		for _, one := range scopes {
			t.known[one] = true
		}
	}
	for i := range c.OAuth {
		know(c.OAuth[i].Scopes)
		for name, implied := range c.OAuth[i].Implies {
			know(append([]string{name}, implied...))
		}
	}
	for i := range c.Servers {
		one := &c.Servers[i]
		its := names{
			Tools:   one.Tools.Rename,
			Prompts: one.Prompts.Rename,
			Prefix:  one.Prefix,
		}
		had := t.oldNames[one.Name]
		if !slices.ContainsFunc(had, func(n names) bool {
			return n.Prefix == its.Prefix && maps.Equal(n.Tools, its.Tools) && maps.Equal(n.Prompts, its.Prompts)
		}) {
			t.oldNames[one.Name] = append(had[max(0, len(had)-maxOldNames):len(had):len(had)], its)
		}
		for _, name := range one.Claims() {
			if !slices.Contains(t.claims, name) {
				t.claims = append(t.claims, name)
			}
		}
		t.tokens = t.tokens || one.Exchanges()
		know(one.Scopes.All)
		t.scoped = t.scoped || len(one.Scopes.All) > 0
		for _, by := range []map[string]config.Words{one.Scopes.Tools, one.Scopes.Prompts, one.Scopes.Resources} {
			for _, scopes := range by {
				t.scoped = true
				know(scopes)
			}
		}
	}
}

// Identify adds two values to the context of a request: the data of the caller's token that servers
// get (I-057, I-303), and the target.
func (a *Access) Identify(r *http.Request, to Target) *http.Request {
	if !a.keys.Tokens() {
		return r
	}
	want, t, ctx := a.tokenUse(), auth.TokenOf(r.Context()), r.Context()
	if want.scoped {
		ctx = context.WithValue(ctx, targetKey{}, to)
	}
	if t == nil {
		return r.WithContext(ctx)
	}
	var subject *identity.Subject
	if _, shown, _ := strings.Cut(r.Header.Get("Authorization"), " "); want.tokens && shown != "" && !t.Fronted() {
		subject = &identity.Subject{
			Token:     strings.TrimLeft(shown, " "),
			Issuer:    t.Issuer,
			Principal: auth.Principal(ctx),
			Until:     t.Until,
		}
	}
	claims := make(map[string][]string, len(want.claims))
	for _, name := range want.claims {
		if text := auth.ClaimText(token.At(t.Claims, name)); text != "" {
			claims[name] = []string{text}
		}
	}
	return r.WithContext(auth.WithIdentity(ctx, identity.New(claims, subject)))
}

// Needs returns the scopes that the messages of a request need, and the ids of its requests. Without messages, Needs
// returns the needs of the address.
func (a *Access) Needs(server, principal string, messages []*jsonrpc.Message) (all []string, ids [][]byte) {
	g, ruled := a.grants.Of(principal)
	now := a.tokenUse()
	n := need{OldNames: now.oldNames, Grant: func(server, tool string) bool {
		return ruled && g.Covers(server) && (tool == "" || g.Passes(tool))
	}}
	for _, m := range messages {
		if m.ID != nil && m.Method != "" {
			ids = append(ids, m.ID)
		}
	}
	for _, c := range now.configs {
		if c != nil {
			n.At(server, c, messages)
		}
	}
	return n.All, ids
}

// targetKey is the context key of the target of a request.
type targetKey struct{}

// Screen answers a request whose token lacks a scope, and otherwise reports false (I-052 to I-055). body is the body
// of a POST.
func (a *Access) Screen(w http.ResponseWriter, r *http.Request, server string, body []byte) (answered bool) {
	t := auth.TokenOf(r.Context())
	if t == nil || !a.tokenUse().scoped {
		return false
	}
	var all []*jsonrpc.Message
	batch := jsonrpc.IsBatch(body)
	parts := [][]byte{body}
	if batch {
		parts, _ = jsonrpc.Split(body) // the handler reports the fault
	}
	if len(parts) > gateway.MaxBatch {
		return false // the handler refuses the batch
	}
	principal := auth.Principal(r.Context())
	mode, _ := gateway.ToolsModeOf(r.URL.Query()) // the routes have refused other modes
	for _, part := range parts {
		if m, err := jsonrpc.ParseUTF8(part); err == nil {
			all = append(all, a.o.Bridge.Resolve(server, principal, mode, m))
		}
	}
	wanted, ids := a.Needs(server, principal, all)
	slices.Sort(wanted)
	missing := without(wanted, t.Scopes)
	if len(missing) == 0 {
		a.upgrades.granted(a.o.Log, principal, t)
		return false
	}
	// Older clients request only the scopes of the answer, and would lose their other scopes.
	if !era.IsModern(r.Header.Get("Mcp-Protocol-Version")) {
		for _, has := range t.Scopes {
			if a.tokenUse().known[has] && !slices.Contains(wanted, has) {
				wanted = append(wanted, has)
			}
		}
	}
	slices.Sort(wanted)
	a.keys.NoteScope()
	a.upgrades.requested(a.o.Log, principal, server, wanted, missing)
	a.insufficient(w, r, missing, wanted, ids, batch)
	return true
}

// without returns the texts that sorted does not have.
func without(texts, sorted []string) (rest []string) {
	for _, one := range texts {
		if _, has := slices.BinarySearch(sorted, one); !has {
			rest = append(rest, one)
		}
	}
	return rest
}

// insufficient answers a request that needs more scopes.
func (a *Access) insufficient(w http.ResponseWriter, r *http.Request, missing, wanted []string, ids [][]byte, batch bool) {
	to, _ := r.Context().Value(targetKey{}).(Target)
	why := "this needs the scope " + strings.Join(missing, " ")
	text := challenge + `, error="insufficient_scope", error_description="` + why + `"`
	if id := a.resource(r, to); id.Root != "" {
		text += `, resource_metadata="` + id.Root + WellKnown + id.Path + `"`
	}
	w.Header().Set("WWW-Authenticate", text+`, scope="`+strings.Join(wanted, " ")+`"`)
	refusal := func(id []byte) []byte {
		return jsonrpc.NewError(id, jsonrpc.CodeInvalidRequest, why, []byte(`{"bridge":"insufficient_scope"}`)).Append(nil, id, nil)
	}
	var body []byte
	switch {
	case batch && len(ids) > 0:
		for _, id := range ids {
			body = append(append(body, ','), refusal(id)...)
		}
		body = append(body, ']')
		body[0] = '['
	case len(ids) == 1:
		body = refusal(ids[0])
	default:
		body = refusal(nil)
	}
	answer.Data(w, http.StatusForbidden, "application/json", body)
}

// scopeUpgrades logs callers that needed more scopes, and callers that came back with them (I-060).
// The zero value is ready for use.
type scopeUpgrades struct {
	mu   sync.Mutex                           // guards the rest
	open simplelru.LRUCache[string, []string] // by principal, the scopes asked for
}

// maxUpgrades bounds the callers in open.
const maxUpgrades = 1000

func (s *scopeUpgrades) requested(log *slog.Logger, principal, server string, wanted, missing []string) {
	s.mu.Lock()
	if s.open == nil {
		s.open, _ = simplelru.NewLRU[string, []string](maxUpgrades, nil) // the size is positive
	}
	was, again := s.open.Get(principal)
	s.open.Add(principal, wanted)
	s.mu.Unlock()
	if !again || !slices.Equal(was, wanted) {
		log.Info("caller asked for more scopes", "principal", principal, "server", server, "missing", strings.Join(missing, " "), "asked_for", strings.Join(wanted, " "))
	}
}

// granted logs that a caller came back with the scopes that it had needed, once.
func (s *scopeUpgrades) granted(log *slog.Logger, principal string, t *token.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return
	}
	wanted, was := s.open.Peek(principal)
	if !was || len(without(wanted, t.Scopes)) > 0 {
		return
	}
	s.open.Remove(principal)
	log.Info("caller came back with more scopes", "principal", principal, "scopes", strings.Join(wanted, " "))
}

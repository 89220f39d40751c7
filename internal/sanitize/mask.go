package sanitize

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// maxAdded bounds the spellings of secrets that were added to a mask.
const maxAdded = 512

// Mask replaces known secrets in texts, in each spelling of JSON and of addresses. Short secrets are
// everywhere: what to leave out is up to the caller. A Mask is safe for concurrent use.
type Mask struct {
	mark  []byte
	fixed []string // spellings, the longest first

	mu    sync.Mutex // guards added
	added []string   // spellings, the oldest first
}

// NewMask returns a mask that puts mark in place of the secrets.
func NewMask(mark string, secrets ...string) *Mask {
	return (&Mask{mark: []byte(mark)}).With(secrets...)
}

// Add masks a secret that changes often, such as a token. It replaces the oldest of many.
func (m *Mask) Add(secret string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.fixed, secret) || slices.Contains(m.added, secret) {
		return
	}
	all := slices.Concat(m.added, spellings(secret)) // other goroutines may read the old list
	m.added = all[max(0, len(all)-maxAdded):]
}

// With returns a mask of these secrets and the ones of m.
func (m *Mask) With(secrets ...string) *Mask {
	all := slices.Concat(m.fixed, m.tokens())
	for _, secret := range secrets {
		all = append(all, spellings(secret)...)
	}
	// Masking a part of another secret first would leave the rest of that secret.
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return &Mask{mark: m.mark, fixed: slices.Compact(all)}
}

func (m *Mask) tokens() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.added
}

// Bytes returns b without secrets. It does not change b, and returns b if it has none.
func (m *Mask) Bytes(b []byte) []byte {
	for _, all := range [][]string{m.fixed, m.tokens()} {
		for _, secret := range all {
			if bytes.Contains(b, []byte(secret)) {
				b = bytes.ReplaceAll(b, []byte(secret), m.mark)
			}
		}
	}
	return b
}

// spellings returns the ways in which a text may contain a secret. Forms and addresses differ in
// spaces. JSON has three: the fewest escapes, more escapes for HTML, and escaped slashes.
func spellings(secret string) []string {
	if secret == "" {
		return nil
	}
	form := url.QueryEscape(secret)
	all := []string{secret, form, strings.ReplaceAll(form, "+", "%20")}
	html, _ := json.Marshal(secret) // marshalling a string cannot fail
	for _, quoted := range []string{string(rawjson.AppendString(nil, secret)), string(html)} {
		inner := quoted[1 : len(quoted)-1]
		all = append(all, inner, strings.ReplaceAll(inner, "/", `\/`))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

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

// maxAdded bounds the spellings of secrets that Add has added to a mask.
const maxAdded = 512

// Mask replaces known secrets in texts, in every spelling of JSON and of addresses. Short secrets occur everywhere, so
// the caller decides which secrets to omit. A Mask is safe for concurrent use.
type Mask struct {
	mark  []byte
	fixed []string // spellings, longest first

	mu    sync.Mutex // guards added
	added []string   // spellings, oldest first
}

// NewMask returns a mask that replaces each secret by mark.
func NewMask(mark string, secrets ...string) *Mask {
	return (&Mask{mark: []byte(mark)}).With(secrets...)
}

// Add masks a secret that changes often, such as a token. At maxAdded spellings, it drops the oldest.
func (m *Mask) Add(secret string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.fixed, secret) || slices.Contains(m.added, secret) {
		return
	}
	all := slices.Concat(m.added, spellings(secret)) // other goroutines may read the old list
	m.added = all[max(0, len(all)-maxAdded):]
}

// With returns a mask of the given secrets and the secrets of m.
func (m *Mask) With(secrets ...string) *Mask {
	all := slices.Concat(m.fixed, m.tokens())
	for _, secret := range secrets {
		all = append(all, spellings(secret)...)
	}
	// If a part of another secret were masked first, the rest of that secret would stay.
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return &Mask{mark: m.mark, fixed: slices.Compact(all)}
}

func (m *Mask) tokens() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.added
}

// Bytes returns b without secrets. It does not change b. If b has no secrets, Bytes returns b itself.
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

// spellings returns the ways in which a text may contain a secret. Forms and addresses write spaces differently. JSON
// has three spellings: with as few escapes as possible, with more escapes for HTML, and with escaped slashes.
func spellings(secret string) []string {
	if secret == "" {
		return nil
	}
	form := url.QueryEscape(secret)
	all := []string{secret, form, strings.ReplaceAll(form, "+", "%20")}
	html, _ := json.Marshal(secret) // a string can always be marshalled
	for _, quoted := range []string{string(rawjson.AppendString(nil, secret)), string(html)} {
		inner := quoted[1 : len(quoted)-1]
		all = append(all, inner, strings.ReplaceAll(inner, "/", `\/`))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

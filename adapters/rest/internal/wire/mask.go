package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// minSecret is the shortest text that is masked in answers: shorter ones are everywhere.
const minSecret = 8

// maxTokens bounds the spellings of tokens, which change often.
const maxTokens = 512

// spellings returns the ways in which a text may contain a secret; none if it is too short.
func spellings(t string) []string {
	if len(t) < minSecret {
		return nil
	}
	all := []string{t}
	add := func(spelling string) {
		if !slices.Contains(all, spelling) {
			all = append(all, spelling)
		}
	}
	add(param.Escape(t, param.Unreserved))
	// JSON has three spellings: the fewest escapes, more escapes for HTML, and escaped slashes.
	plain := string(rawjson.AppendString(nil, t))
	html, _ := json.Marshal(t) // marshalling a string cannot fail
	for _, quoted := range []string{plain, string(html)} {
		inner := quoted[1 : len(quoted)-1]
		add(inner)
		add(strings.ReplaceAll(inner, "/", `\/`))
	}
	return all
}

// hide masks a token in everything that clients see, as configured secrets are.
func (s *Source) hide(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.secret, token) {
		return
	}
	all := slices.Concat(s.secret, spellings(token)) // other goroutines may read the old list
	if over := len(all) - s.configured - maxTokens; over > 0 {
		all = slices.Delete(all, s.configured, s.configured+over)
	}
	s.secret = all
}

// mask replaces secrets in a text.
func (s *Source) mask(b []byte) []byte {
	s.mu.Lock()
	secret := s.secret
	s.mu.Unlock()
	return maskTexts(b, secret)
}

// maskTexts replaces texts in another text.
func maskTexts(b []byte, texts []string) []byte {
	for _, t := range texts {
		if bytes.Contains(b, []byte(t)) {
			b = bytes.ReplaceAll(b, []byte(t), []byte(masked))
		}
	}
	return b
}

// longestFirst sorts texts for masking: masking a part of another secret first would leave the rest
// of that secret.
func longestFirst(texts []string) {
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
}

// head returns the beginning of a text without secrets. It masks first: a cut could leave an
// unrecognizable part of a secret.
func (s *Source) head(b []byte, limit int) string { return head(s.mask(b), limit) }

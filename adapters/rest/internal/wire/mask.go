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

// minSecret is how long a text must be to be looked for in answers: shorter
// ones are everywhere.
const minSecret = 8

// maxTokens bounds the spellings of tokens, which come and go.
const maxTokens = 512

// spellings returns how a secret may stand in a text; none when it is too short.
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
	// As JSON has it: the least that has to be escaped, what some escape besides
	// for HTML, and slashes.
	plain := string(rawjson.AppendString(nil, t))
	html, _ := json.Marshal(t) // of a string
	for _, quoted := range []string{plain, string(html)} {
		inner := quoted[1 : len(quoted)-1]
		add(inner)
		add(strings.ReplaceAll(inner, "/", `\/`))
	}
	return all
}

// hide has a token masked in whatever is told to clients, as what is configured
// is.
func (s *Source) hide(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.secret, token) {
		return
	}
	all := slices.Concat(s.secret, spellings(token)) // others may be reading it
	if over := len(all) - s.lasting - maxTokens; over > 0 {
		all = slices.Delete(all, s.lasting, s.lasting+over)
	}
	s.secret = all
}

// mask takes secrets out of a text.
func (s *Source) mask(b []byte) []byte {
	s.mu.Lock()
	secret := s.secret
	s.mu.Unlock()
	return without(b, secret)
}

// without takes texts out of another.
func without(b []byte, texts []string) []byte {
	for _, t := range texts {
		if bytes.Contains(b, []byte(t)) {
			b = bytes.ReplaceAll(b, []byte(t), []byte(masked))
		}
	}
	return b
}

// longestFirst sorts texts that are to be masked: one that is a part of another would
// leave the rest of it.
func longestFirst(texts []string) {
	slices.SortFunc(texts, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
}

// head returns the beginning of a text without secrets. What is cut first could end
// with a part of one, which is not found any more.
func (s *Source) head(b []byte, limit int) string { return head(s.mask(b), limit) }

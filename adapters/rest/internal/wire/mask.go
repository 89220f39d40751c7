package wire

import (
	"slices"

	"github.com/mcp-bridge/bridge/internal/cut"
)

// minSecret is the length of the shortest text that is masked, in bytes. A shorter text may occur in
// any answer by chance.
const minSecret = 8

// long returns the secrets that are long enough to mask.
func long(secrets []string) []string {
	return slices.DeleteFunc(secrets, func(s string) bool { return len(s) < minSecret })
}

// hide adds a token to the texts that are masked in everything that clients see.
func (s *Source) hide(token string) {
	if len(token) >= minSecret {
		s.secrets.Add(token)
	}
}

// mask replaces secrets in a text.
func (s *Source) mask(b []byte) []byte { return s.secrets.Bytes(b) }

// head returns the beginning of a text, with secrets masked. It masks before the cut, which could
// leave an unrecognizable part of a secret.
func (s *Source) head(b []byte, limit int) string { return cut.Head(s.mask(b), limit) }

package wire

import (
	"slices"
)

// minSecret is the shortest text that is masked in answers: shorter ones are everywhere.
const minSecret = 8

// long returns the secrets that are long enough.
func long(secrets []string) []string {
	return slices.DeleteFunc(secrets, func(s string) bool { return len(s) < minSecret })
}

// hide masks a token in everything that clients see, as configured secrets are.
func (s *Source) hide(token string) {
	if len(token) >= minSecret {
		s.secrets.Add(token)
	}
}

// mask replaces secrets in a text.
func (s *Source) mask(b []byte) []byte { return s.secrets.Bytes(b) }

// head returns the beginning of a text without secrets. It masks first: a cut could leave an
// unrecognizable part of a secret.
func (s *Source) head(b []byte, limit int) string { return head(s.mask(b), limit) }

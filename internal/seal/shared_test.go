package seal

import (
	"bytes"
	"fmt"
	"testing"
)

const secret = "a secret of more than 32 characters"

// A sealed payload opens only with the same secret, purpose and place (S-082).
func TestShared(t *testing.T) {
	s := NewShared("records", secret)
	sealed := s.Seal("b:s:1", []byte("payload"))
	if bytes.Contains(sealed, []byte("payload")) || bytes.Equal(sealed, s.Seal("b:s:1", []byte("payload"))) {
		t.Error("the payload is readable, or sealed the same way twice")
	}
	rotated := NewShared("records", "another secret, which is newer now", secret)
	for name, k := range map[string]*Shared{"itself": s, "another process": NewShared("records", secret), "the secret is an old one": rotated} {
		if got, err := k.Open("b:s:1", sealed); err != nil || string(got) != "payload" {
			t.Errorf("%s: Open = %q, %v", name, got, err)
		}
	}
	if _, err := s.Open("b:s:1", rotated.Seal("b:s:1", nil)); err != ErrForged {
		t.Errorf("what the newer secret seals: %v", err)
	}
	for name, open := range map[string]func() ([]byte, error){
		"another place":   func() ([]byte, error) { return s.Open("b:s:2", sealed) },
		"another purpose": func() ([]byte, error) { return NewShared("members", secret).Open("b:s:1", sealed) },
		"another secret":  func() ([]byte, error) { return NewShared("records", secret+"!").Open("b:s:1", sealed) },
		"empty":           func() ([]byte, error) { return s.Open("b:s:1", nil) },
	} {
		if got, err := open(); err != ErrForged || got != nil {
			t.Errorf("%s: Open = %q, %v", name, got, err)
		}
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := s.Open("b:s:1", changed); err != ErrForged {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", s, s, s); text != "seal.Shared seal.Shared seal.Shared" {
		t.Errorf("printed: %s", text)
	}
}

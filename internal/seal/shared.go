package seal

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"

	"golang.org/x/crypto/chacha20poly1305"
)

// Shared seals data that several processes share, with a key from their common secret. Its random nonces have 192 bits,
// so any number of processes can seal any number of times.
type Shared struct {
	aeads []cipher.AEAD // the first seals, and all open
}

// NewShared returns the key for one purpose. The first secret seals, and all secrets open.
func NewShared(purpose string, secrets ...string) *Shared {
	s := &Shared{}
	for _, secret := range secrets {
		aead, err := chacha20poly1305.NewX(Derive(secret, purpose, chacha20poly1305.KeySize))
		if err != nil {
			panic(err) // a key of this size is always valid
		}
		s.aeads = append(s.aeads, aead)
	}
	return s
}

// Derive derives n bytes for one purpose from a secret. The bytes reveal neither the secret nor the bytes for another
// purpose.
func Derive(secret, purpose string, n int) []byte {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "mcp-bridge "+purpose, n)
	if err != nil {
		panic(err) // so few bytes can always be derived
	}
	return key
}

// Seal seals the payload. Only Open with the same place returns the payload.
func (s *Shared) Seal(place string, payload []byte) []byte {
	nonce := make([]byte, chacha20poly1305.NonceSizeX, chacha20poly1305.NonceSizeX+len(payload)+chacha20poly1305.Overhead)
	rand.Read(nonce) // never returns an error
	return s.aeads[0].Seal(nonce, nonce, payload, []byte(place))
}

// Open returns the payload that was sealed for a place, or ErrForged.
func (s *Shared) Open(place string, sealed []byte) ([]byte, error) {
	if len(sealed) < chacha20poly1305.NonceSizeX {
		return nil, ErrForged
	}
	nonce, text := sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:]
	for _, aead := range s.aeads {
		if payload, err := aead.Open(nil, nonce, text, []byte(place)); err == nil {
			return payload, nil
		}
	}
	return nil, ErrForged
}

// Format does not print the key.
func (s *Shared) Format(f fmt.State, _ rune) { io.WriteString(f, "seal.Shared") }

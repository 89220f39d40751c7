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

// Shared seals what several processes keep in one place, under a key of the secret
// that they share. Its random nonces have 192 bits: any number of processes may use
// it, any number of times.
type Shared struct {
	aeads []cipher.AEAD // the first seals, and all open
}

// NewShared makes the key for one purpose from secrets: the first of them seals, and
// what any of them has sealed opens.
func NewShared(purpose string, secrets ...string) *Shared {
	s := &Shared{}
	for _, secret := range secrets {
		aead, err := chacha20poly1305.NewX(Derive(secret, purpose, chacha20poly1305.KeySize))
		if err != nil {
			panic(err) // a key of that size always makes one
		}
		s.aeads = append(s.aeads, aead)
	}
	return s
}

// Derive makes n bytes for one purpose from a secret, from which neither the secret
// nor what is made for another purpose can be told.
func Derive(secret, purpose string, n int) []byte {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "mcp-bridge "+purpose, n)
	if err != nil {
		panic(err) // so few bytes can always be made
	}
	return key
}

// Seal returns the payload sealed. Only Open with the same place gives it back.
func (s *Shared) Seal(place string, payload []byte) []byte {
	nonce := make([]byte, chacha20poly1305.NonceSizeX, chacha20poly1305.NonceSizeX+len(payload)+chacha20poly1305.Overhead)
	rand.Read(nonce) // it does not fail: it ends the process
	return s.aeads[0].Seal(nonce, nonce, payload, []byte(place))
}

// Open returns what was sealed for that place, or ErrForged.
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

// Format keeps the key out of whatever it is printed to.
func (s *Shared) Format(f fmt.State, _ rune) { io.WriteString(f, "seal.Shared") }

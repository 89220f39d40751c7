// Package seal makes handles that clients store and return, such as requestState. Only the bridge can read, change or
// make them.
//
// A token is unpadded base64url of a version byte, a random nonce, and the payload, encrypted with AES-256-GCM. A
// token's kind is authenticated but not contained. A token has no time and no owner, and opens any number of times.
// Callers that need such data put it into the payload.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// MaxToken is the maximum length of a token that Open reads. A payload must be shorter than about three quarters of
	// MaxToken.
	MaxToken = 256 << 10

	version       = 1
	versionShared = 2 // with a key of several processes (see Shared)
	prefix        = 1 // the version byte, before the nonce, the text and the tag
)

// ErrForged is the error for every token that does not open: malformed, changed, or of another kind or key. It does not
// reveal the reason.
var ErrForged = errors.New("the token was not issued by this bridge, or its key was replaced")

// encoding accepts only one text for each token.
var encoding = base64.RawURLEncoding.Strict()

// Key seals and opens tokens. It is safe for concurrent use. Random nonces are safe for about 2^32 tokens.
type Key struct {
	aead   cipher.AEAD // adds the nonce itself
	shared *Shared     // replaces aead if not nil
}

// New returns a key from secrets that several processes share. The first secret seals, and all secrets open. Without
// secrets, the key is random, so no token outlives the process.
func New(secrets ...string) (*Key, error) {
	if len(secrets) > 0 {
		return &Key{shared: NewShared("handles", secrets...)}, nil
	}
	secret := make([]byte, 32)
	rand.Read(secret) // never returns an error
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Key{aead: aead}, nil
}

// Seal returns a token for the payload. Only Open with the same kind returns the payload.
func (k *Key) Seal(kind string, payload []byte) string {
	if k.shared != nil {
		head := []byte{versionShared}
		return encoding.EncodeToString(append(head, k.shared.Seal(string(bound(head, kind)), payload)...))
	}
	token := make([]byte, prefix, prefix+k.aead.Overhead()+len(payload))
	token[0] = version
	token = k.aead.Seal(token, nil, payload, bound(token[:prefix], kind))
	return encoding.EncodeToString(token)
}

// Open returns the payload of a token of a kind, or ErrForged.
func (k *Key) Open(kind, token string) ([]byte, error) {
	// The decoder ignores line breaks, so one token would have many texts.
	if len(token) > MaxToken || strings.ContainsAny(token, "\r\n") {
		return nil, ErrForged
	}
	b, err := encoding.DecodeString(token)
	if err == nil && k.shared != nil && len(b) > prefix && b[0] == versionShared {
		return k.shared.Open(string(bound(b[:prefix], kind)), b[prefix:])
	}
	if err != nil || k.shared != nil || len(b) < prefix || b[0] != version {
		return nil, ErrForged
	}
	payload, err := k.aead.Open(nil, nil, b[prefix:], bound(b[:prefix], kind))
	if err != nil {
		return nil, ErrForged
	}
	return payload, nil
}

// bound returns the additional authenticated data. Its first part has a fixed length, so different kinds always make
// different data.
func bound(head []byte, kind string) []byte {
	return append(bytes.Clone(head), kind...)
}

// Fingerprint returns a short hash that represents a text, such as an owner, in a payload.
func Fingerprint(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Format does not print the key.
func (k *Key) Format(f fmt.State, _ rune) { io.WriteString(f, "seal.Key") }

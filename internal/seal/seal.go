// Package seal makes handles that a client keeps and gives back, such as
// requestState: nobody else can read, change or invent them.
//
// A token is base64url, without padding, of a version byte, a random nonce, and
// the payload under AES-256-GCM. Its kind is authenticated but not in it. A
// token says nothing of when it was made and for whom, and it opens any number
// of times: who needs that puts it into the payload and keeps count.
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
	// MaxToken is the length above which a token is refused unread. A payload
	// that is to come back must be at most about three quarters of it.
	MaxToken = 256 << 10

	version       = 1
	versionShared = 2 // under a key of several processes: see Shared
	prefix        = 1 // the version; what follows is nonce, text and tag
)

// ErrForged is the error for every token that does not open: text that is no
// token, one of another kind or of another key, or that was changed. Which of
// them it is, is not told.
var ErrForged = errors.New("the token is not one of ours")

// encoding takes one text for each token only.
var encoding = base64.RawURLEncoding.Strict()

// Key seals and opens. It may be used concurrently. A random nonce is good for
// some four thousand million tokens.
type Key struct {
	aead   cipher.AEAD // adds the nonce itself
	shared *Shared     // in its place, if it is not nil
}

// New returns a key of secrets that several processes have: the first seals, and what
// any of them has sealed opens. Without secrets it is one of this process: what it seals
// is lost with it.
func New(secrets ...string) (*Key, error) {
	if len(secrets) > 0 {
		return &Key{shared: NewShared("handles", secrets...)}, nil
	}
	secret := make([]byte, 32)
	rand.Read(secret) // it does not fail: it ends the process
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

// Seal returns a token for the payload. Only Open with the same kind gives it
// back.
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

// Open returns the payload of a token of that kind, or ErrForged.
func (k *Key) Open(kind, token string) ([]byte, error) {
	// The decoder passes over line breaks: the same token would have many texts.
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

// bound is what the tag vouches for beside the payload. The first part has a
// fixed length, so no two kinds make the same.
func bound(head []byte, kind string) []byte {
	return append(bytes.Clone(head), kind...)
}

// Fingerprint stands for a text in a payload: of whose it is, say.
func Fingerprint(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Format keeps the key out of whatever it is printed to.
func (k *Key) Format(f fmt.State, _ rune) { io.WriteString(f, "seal.Key") }

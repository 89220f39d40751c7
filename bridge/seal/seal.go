// Package seal makes handles that a client keeps and gives back, such as
// requestState: nobody else can read, change or invent them.
//
// A token is base64url, without padding, of a version byte, the id of the key,
// a random nonce, and the payload under AES-256-GCM. Its kind is authenticated
// but not in it. A token says nothing of when it was made and for whom, and it
// opens any number of times: who needs that puts it into the payload and keeps
// count.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

const (
	// MaxToken is the length above which a token is refused unread. A payload
	// that is to come back must be at most about three quarters of it.
	MaxToken = 256 << 10
	// MinSecret is the length that a secret has at least, in bytes.
	MinSecret = 32

	version = 1
	idSize  = 8
	prefix  = 1 + idSize // version and key id; what follows is nonce, text and tag
	// kept is how many keys before the newest one Rotate leaves.
	kept = 3
)

// ErrForged is the error for every token that does not open: text that is no
// token, one of another kind, of a key that is not known (any more), or that
// was changed. Which of them it is, is not told.
var ErrForged = errors.New("the token is not one of ours")

// encoding takes one text for each token only.
var encoding = base64.RawURLEncoding.Strict()

// Keys seal and open. They may be used concurrently.
type Keys struct {
	given []key // from the operator's secrets, the sealing one first

	mu   sync.RWMutex // guards made
	made []key        // by ourselves, newest first; the first one seals if there is any
}

type key struct {
	id   [idSize]byte
	aead cipher.AEAD // adds the nonce itself
}

// New returns keys of this process: what they seal is lost with it.
func New() (*Keys, error) {
	made, err := random()
	if err != nil {
		return nil, err
	}
	return &Keys{made: []key{made}}, nil
}

// FromSecrets returns the keys that several instances share: the first secret
// seals, all open. A secret is replaced by putting the new one first on all
// instances once they all open it, and dropping the old one when its last
// token has expired. It must be random: no work makes guessing it slow.
func FromSecrets(secrets ...[]byte) (*Keys, error) {
	if len(secrets) == 0 {
		return nil, errors.New("no secret to seal with: at least one is needed")
	}
	k := &Keys{}
	for i, s := range secrets {
		if len(s) < MinSecret {
			return nil, fmt.Errorf("secret %d has %d bytes: at least %d random ones are needed", i+1, len(s), MinSecret)
		}
		next, err := derive(s)
		if err != nil {
			return nil, fmt.Errorf("secret %d: %w", i+1, err)
		}
		for j, other := range k.given {
			if other.id == next.id {
				return nil, fmt.Errorf("secret %d is secret %d again", i+1, j+1)
			}
		}
		k.given = append(k.given, next)
	}
	return k, nil
}

func random() (key, error) {
	secret := make([]byte, MinSecret)
	rand.Read(secret) // it does not fail: it ends the process
	return derive(secret)
}

// derive makes the key of a secret, and the id that it is found by: neither
// tells the other.
func derive(secret []byte) (key, error) {
	const use = "mcp bridge sealed handles, version 1: "
	raw, err := hkdf.Key(sha256.New, secret, nil, use+"key", 32)
	if err != nil {
		return key{}, err
	}
	id, err := hkdf.Key(sha256.New, secret, nil, use+"id", idSize)
	if err != nil {
		return key{}, err
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return key{}, err
	}
	return key{id: [idSize]byte(id), aead: aead}, nil
}

// Rotate makes a new key that seals from now on. The three that it made before
// still open, and all that come from secrets do. The new key is this process's
// own: where instances share secrets, change those instead. A random nonce is
// good for some four thousand million tokens of one key.
func (k *Keys) Rotate() {
	next, err := random()
	if err != nil {
		panic(err) // keys were derived in the same way before
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.made = append([]key{next}, k.made[:min(len(k.made), kept)]...)
}

// Seal returns a token for the payload. Only Open with the same kind gives it
// back.
func (k *Keys) Seal(kind string, payload []byte) string {
	s := k.sealing()
	token := make([]byte, prefix, prefix+s.aead.Overhead()+len(payload))
	token[0] = version
	copy(token[1:], s.id[:])
	token = s.aead.Seal(token, nil, payload, bound(token[:prefix], kind))
	return encoding.EncodeToString(token)
}

// Open returns the payload of a token of that kind, or ErrForged.
func (k *Keys) Open(kind, token string) ([]byte, error) {
	// The decoder passes over line breaks: the same token would have many texts.
	if len(token) > MaxToken || strings.ContainsAny(token, "\r\n") {
		return nil, ErrForged
	}
	b, err := encoding.DecodeString(token)
	if err != nil || len(b) < prefix || b[0] != version {
		return nil, ErrForged
	}
	s, ok := k.find(b[1:prefix])
	if !ok {
		return nil, ErrForged
	}
	payload, err := s.aead.Open(nil, nil, b[prefix:], bound(b[:prefix], kind))
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

func (k *Keys) sealing() key {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if len(k.made) > 0 {
		return k.made[0]
	}
	return k.given[0]
}

// find returns the key of that id. Ids stand in every token: how long the
// search takes tells nothing that is secret.
func (k *Keys) find(id []byte) (key, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, keys := range [][]key{k.made, k.given} {
		for _, s := range keys {
			if bytes.Equal(s.id[:], id) {
				return s, true
			}
		}
	}
	return key{}, false
}

// Format keeps the keys out of whatever they are printed to.
func (k *Keys) Format(f fmt.State, _ rune) { io.WriteString(f, "seal.Keys") }

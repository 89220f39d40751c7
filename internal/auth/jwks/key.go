package jwks

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-jose/go-jose/v4"
)

// Key is a public key of an issuer.
type Key struct {
	// ID is the kid of the key. It may be empty, and several keys may have the same.
	ID string
	// Public is an *rsa.PublicKey, an *ecdsa.PublicKey or an ed25519.PublicKey.
	Public any

	alg       string // the only algorithm of the key; empty means every algorithm that fits
	raw       string // JSON text in the set
	withdrawn atomic.Bool
}

// Withdrawn reports whether the issuer has withdrawn the key.
func (k *Key) Withdrawn() bool { return k.withdrawn.Load() }

// fits reports whether the key fits an algorithm (I-014).
func (k *Key) fits(alg string) bool {
	if k.alg != "" && k.alg != alg {
		return false
	}
	switch public := k.Public.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")
	case *ecdsa.PublicKey:
		return map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()}[alg] == public.Curve
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}

const (
	maxKeys    = 100  // in one set
	minRSABits = 2048 // shorter keys can be broken
)

// errOtherUse means that a key is for another purpose than signatures, which is no fault of the set.
var errOtherUse = errors.New("is for something else")

// parse parses a key set. skipped are the faults of the keys that cannot be used. Keys of unknown types, and keys for
// encryption, are left out without a fault.
func parse(data []byte) (keys []*Key, skipped []error, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	switch err := json.Unmarshal(data, &set); {
	case err != nil:
		return nil, nil, errors.New("the text is not a JSON Web Key Set")
	case len(set.Keys) > maxKeys:
		return nil, nil, fmt.Errorf("the set has %d keys, more than %d", len(set.Keys), maxKeys)
	}
	for i, raw := range set.Keys {
		k, err := parseKey(raw)
		switch {
		case errors.Is(err, errOtherUse):
		case err != nil:
			skipped = append(skipped, fmt.Errorf("key %d: %w", i+1, err))
		default:
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, skipped, errors.New("the set has no usable key for signatures")
	}
	return keys, skipped, nil
}

// Check returns the faults of a key set that has no usable key.
func Check(data []byte) error {
	_, skipped, err := parse(data)
	return errors.Join(append(skipped, err)...)
}

func parseKey(raw []byte) (*Key, error) {
	var about struct {
		Type string           `json:"kty"`
		Use  string           `json:"use"`
		Ops  []string         `json:"key_ops"`
		D    *json.RawMessage `json:"d"`
	}
	if err := json.Unmarshal(raw, &about); err != nil {
		return nil, errors.New("is not a JSON Web Key")
	}
	switch {
	case about.Type != "RSA" && about.Type != "EC" && about.Type != "OKP", about.Use != "" && about.Use != "sig",
		about.Ops != nil && !slices.Contains(about.Ops, "verify") && !slices.Contains(about.Ops, "sign"): // (RFC 7517 §4.3)
		return nil, errOtherUse
	case about.D != nil:
		return nil, errors.New("is a private key: everybody who has read it can sign tokens")
	}
	var k jose.JSONWebKey
	if err := k.UnmarshalJSON(raw); err != nil || !k.Valid() {
		if about.Type == "OKP" || about.Type == "EC" {
			return nil, errOtherUse // an unknown curve
		}
		return nil, errors.New("cannot be read")
	}
	switch public := k.Key.(type) {
	case *rsa.PublicKey:
		if n := public.N.BitLen(); n < minRSABits {
			return nil, fmt.Errorf("has %d bits, fewer than %d: it can be broken", n, minRSABits)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return nil, errOtherUse
	}
	return &Key{
		ID:     k.KeyID,
		Public: k.Key,
		alg:    k.Algorithm,
		raw:    string(raw),
	}, nil
}

// Fixed is a key set that does not change.
type Fixed struct{ keys }

// Parse parses a key set. It leaves out unusable keys. If no key is usable, it returns the faults.
func Parse(data []byte) (*Fixed, error) {
	all, skipped, err := parse(data)
	if err != nil {
		return nil, errors.Join(append(skipped, err)...)
	}
	return &Fixed{keys{all: all}}, nil
}

// Find returns the keys that may have made a signature, as Set.Find does.
func (f *Fixed) Find(id string, named bool, alg string) []*Key {
	found, _ := f.find(id, named, alg)
	return found
}

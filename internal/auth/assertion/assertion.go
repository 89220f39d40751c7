// Package assertion signs client assertions (RFC 7523, private_key_jwt). With them a key, not a secret, authenticates
// the bridge.
package assertion

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Type is the value of client_assertion_type.
const Type = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// life is the lifetime of an assertion, which is sent at once.
const life = 60 * time.Second

// Algorithms are the supported signature algorithms.
var Algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// Key is a private key that signs assertions.
type Key struct {
	// File is the name of a file with the private key in PEM. ID is the kid of the key at the authorization server.
	// Algorithm is the signature algorithm; empty means the usual one for the key.
	File, ID, Algorithm string
}

// AddTo adds an assertion to a form (RFC 7523 §2.2, §3). Only the issuer is its audience, so that no other server can
// use it (I-301). taken are the algorithms that the issuer accepts; nil if it lists none. AddTo reads the file each
// time, since the file may have been replaced.
func (k *Key) AddTo(form url.Values, client, issuer string, taken []string) error {
	key, err := Read(k.File)
	if err != nil {
		return fmt.Errorf("key_file: %w", err)
	}
	alg, err := algorithm(key, k.Algorithm, taken)
	if err != nil {
		return err
	}
	o := (&jose.SignerOptions{}).WithType("JWT")
	if k.ID != "" {
		o = o.WithHeader("kid", k.ID)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, o)
	if err != nil {
		return err
	}
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"iss": client, "sub": client, "aud": issuer, "jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(life).Unix(),
	})
	if err != nil {
		return err
	}
	signed, err := s.Sign(claims)
	if err != nil {
		return err
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		return err
	}
	form.Set("client_assertion_type", Type)
	form.Set("client_assertion", text)
	return nil
}

// Look makes the path of a key file absolute and reads the file. fault is why the file cannot be used, and remark is a
// warning. Neither shows the key.
func Look(file *string, absolute func(string) string) (remark string, fault error) {
	if *file == "" {
		return "", nil
	}
	*file = absolute(*file)
	info, err := os.Stat(*file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("does not exist")
	} else if err != nil {
		return "", errors.New("cannot be read")
	}
	if _, err := Read(*file); err != nil {
		return "", err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		remark = "others on this machine can read it: chmod 600"
	}
	return remark, nil
}

// Read reads a private key: PEM of PKCS #8, PKCS #1 or SEC 1, without a password.
func Read(path string) (crypto.Signer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, text := pem.Decode(text)
	for block != nil && !strings.HasSuffix(block.Type, "PRIVATE KEY") {
		block, text = pem.Decode(text)
	}
	if block == nil {
		return nil, errors.New("it must hold a PEM private key")
	}
	var key any
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, errors.New("its private key cannot be read: it must be RSA, ECDSA or Ed25519, without a password")
	}
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if k.N.BitLen() < 2048 {
			return nil, errors.New("its RSA key must have at least 2048 bits")
		}
		return k, nil
	case *ecdsa.PrivateKey:
		return k, nil
	case ed25519.PrivateKey:
		return k, nil
	}
	return nil, errors.New("its private key must be RSA, ECDSA or Ed25519")
}

// algorithm returns the algorithm for a key: set, or the usual one that fits the key and that the issuer accepts.
func algorithm(key crypto.Signer, set string, taken []string) (jose.SignatureAlgorithm, error) {
	var can []jose.SignatureAlgorithm
	switch k := key.(type) {
	case *rsa.PrivateKey:
		can = []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.RS384, jose.RS512, jose.PS384, jose.PS512}
	case *ecdsa.PrivateKey:
		alg, ok := map[int]jose.SignatureAlgorithm{256: jose.ES256, 384: jose.ES384, 521: jose.ES512}[k.Curve.Params().BitSize]
		if !ok {
			return "", errors.New("key_file: the curve of the key must be P-256, P-384 or P-521")
		}
		can = []jose.SignatureAlgorithm{alg}
	default:
		can = []jose.SignatureAlgorithm{jose.EdDSA}
	}
	for _, alg := range can {
		if set == string(alg) || set == "" && (len(taken) == 0 || slices.Contains(taken, string(alg))) {
			return alg, nil
		}
	}
	if set != "" {
		return "", fmt.Errorf("algorithm %s does not fit the key: use one of %v", set, can)
	}
	return "", fmt.Errorf("the authorization server supports none of the key's algorithms, %v: use another key", can)
}

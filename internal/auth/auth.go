// Package auth authenticates callers: an [Authenticator] returns the principal of a request's key or token.
//
// A key is sent as Authorization: Bearer KEY or as X-API-Key: KEY, never in a URL, which ends up in
// logs. The time of a lookup reveals nothing about keys: it compares hashes, salted with a random key
// of the process, and always all of them.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Why a request has no principal. The texts reveal nothing about the keys that exist.
var (
	// ErrMissing means that the request has no key.
	ErrMissing = errors.New("the request has no key")
	// ErrInvalid means that the request has an unknown key, or more than one key.
	ErrInvalid = errors.New("the key of the request is not valid")
)

// MinLength is the minimum length of a key in bytes. Shorter keys can be guessed.
const MinLength = 16

// ErrShort and ErrCharacter are the faults of a key.
var (
	ErrShort     = errors.New("must have at least 16 characters: a shorter one can be guessed")
	ErrCharacter = errors.New("must consist of visible ASCII characters")
)

// Check returns the fault of a key, or nil: it is too short, or a header cannot hold it.
func Check(key string) error {
	switch {
	case len(key) < MinLength:
		return ErrShort
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return ErrCharacter
	}
	return nil
}

// Key is a key of a principal.
type Key struct {
	Principal string
	// Token is the key itself. File instead names a file with the key, which may end with a line break. Keys reads the
	// file again when it changes.
	Token, File string
}

// Keys are the keys of all callers. Its methods may be called concurrently.
type Keys struct {
	log       *slog.Logger
	salt      [32]byte
	known     atomic.Pointer[[]known] // in the order of keys
	nextCheck atomic.Int64            // when the files are checked next, in Unix nanoseconds; 0 if there are none

	mu       sync.Mutex // guards the rest; held while files are read, which no request waits for
	keys     []Key
	files    []*keyFile // by the index in keys; nil for a key without a file
	logged   []string   // by the index in keys: the fault that was logged last
	onChange func(principal string, good bool)
}

// known is a key in the form in which it is compared.
type known struct {
	principal string
	sum       [sha256.Size]byte
	usable    int // 1 for a usable key, otherwise 0
}

// New returns Keys, and reads their files. It logs a key that cannot be used; only the principal of that key is locked
// out.
func New(keys []Key, log *slog.Logger) *Keys {
	k := &Keys{log: log, onChange: func(string, bool) {}}
	_, _ = rand.Read(k.salt[:]) // it never fails
	k.Set(keys)
	return k
}

// Set replaces the keys. For principals that lose or get a key it calls the function of OnChange.
func (k *Keys) Set(keys []Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	files, logged := make([]*keyFile, len(keys)), make([]string, len(keys))
	next := int64(0)
	for i := range keys {
		if keys[i].File != "" {
			files[i] = &keyFile{path: keys[i].File}
			next = time.Now().Add(checkEvery).UnixNano()
		}
		for j := range k.keys {
			if k.keys[j] == keys[i] { // an old fault is not logged again
				logged[i] = k.logged[j]
			}
		}
	}
	k.keys, k.files, k.logged = keys, files, logged
	k.readFiles()
	k.nextCheck.Store(next)
}

// OnChange sets the function f. When a principal loses its last usable key, f is called with good = false, after the
// last request was admitted. When a principal has a key again, f is called with good = true, before the first request
// is admitted. A replaced key is neither. f must not check a key.
func (k *Keys) OnChange(f func(principal string, good bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onChange = f
}

// Watch checks the files for changes until ctx ends, even if there are no requests.
func (k *Keys) Watch(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if k.nextCheck.Load() == 0 {
				continue // there are no files
			}
			k.mu.Lock()
			k.readNow()
			k.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// checkEvery is the interval between two checks of the files.
const checkEvery = 2 * time.Second

// find returns the principal of the key with that sum.
func (k *Keys) find(sum [sha256.Size]byte) (principal string, found bool) {
	all := *k.known.Load()
	which := -1
	for i := range all {
		same := subtle.ConstantTimeCompare(all[i].sum[:], sum[:]) & all[i].usable
		which = subtle.ConstantTimeSelect(same, i, which)
	}
	if which < 0 {
		return "", false
	}
	return all[which].principal, true
}

// The headers that hold a key, in canonical form.
const (
	authorization = "Authorization"
	apiKey        = "X-Api-Key"
)

// keyOf returns the key in the headers. It refuses a request with two keys, because a proxy on the way may have checked
// the other one.
func keyOf(h http.Header) (string, error) {
	bearer, plain := h[authorization], h[apiKey]
	switch {
	case len(bearer) == 0 && len(plain) == 0:
		return "", ErrMissing
	case len(bearer) > 1 || len(plain) > 1:
		return "", ErrInvalid
	case len(bearer) == 0:
		return plain[0], nil
	}
	scheme, token, _ := strings.Cut(bearer[0], " ")
	token = strings.TrimLeft(token, " ")
	if !strings.EqualFold(scheme, "Bearer") || len(plain) == 1 && subtle.ConstantTimeCompare([]byte(plain[0]), []byte(token)) == 0 {
		return "", ErrInvalid
	}
	return token, nil
}

// sum returns the salted hash of a key.
func (k *Keys) sum(key string) [sha256.Size]byte {
	var room [4 << 10]byte // also for tokens, which are longer than keys
	return sha256.Sum256(append(append(room[:0], k.salt[:]...), key...))
}

// Sum is the salted hash of a key. It is valid only in this process, and does not reveal the key.
type Sum [sha256.Size]byte

// Key returns the principal of a key, and the sum of the key. ok is false if the key is unknown.
func (k *Keys) Key(text string) (principal string, sum Sum, ok bool) {
	k.refresh()
	sum = k.sum(text)
	principal, ok = k.find(sum)
	return principal, sum, ok
}

// Holder returns the principal that now has the key with that sum. ok is false if the key was removed.
func (k *Keys) Holder(sum Sum) (principal string, ok bool) {
	k.refresh()
	return k.find(sum)
}

// HasCredential reports whether a request has a header with a key, valid or not.
func HasCredential(h http.Header) bool { return len(h[authorization])+len(h[apiKey]) > 0 }

type contextKey struct{}

// WithPrincipal returns a context with the principal of a request.
func WithPrincipal(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, contextKey{}, name)
}

// Principal returns the principal of a request; empty if callers are not authenticated.
func Principal(ctx context.Context) string {
	switch v := ctx.Value(contextKey{}).(type) {
	case string:
		return v
	case *Caller:
		return v.Principal
	}
	return ""
}

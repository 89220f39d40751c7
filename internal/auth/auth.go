// Package auth says who a caller is: the principal, by the key or the token that its
// request shows ([Door]).
//
// A key stands in a header, as Authorization: Bearer KEY or as X-API-Key: KEY,
// and nowhere else; never in a URL, which ends up in logs. How long it takes to
// look a key up says nothing of the keys that there are: what is compared are
// hashes with a random key of the process, and always all of them.
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

// Why a request shows nobody. They say nothing about the keys that there are.
var (
	// ErrMissing: the request has no key.
	ErrMissing = errors.New("no key was shown")
	// ErrInvalid: what it shows is no key, or it shows more than one.
	ErrInvalid = errors.New("the key that was shown is not valid")
)

// MinLength is how long a key has to be: shorter ones can be guessed.
const MinLength = 16

// What is wrong with a key.
var (
	ErrShort     = errors.New("must have at least 16 characters: a shorter one can be guessed")
	ErrCharacter = errors.New("must consist of visible ASCII characters")
)

// Check reports what is wrong with a key: it could be guessed, or not be sent.
func Check(key string) error {
	switch {
	case len(key) < MinLength:
		return ErrShort
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return ErrCharacter
	}
	return nil
}

// Key is one key, and whose it is.
type Key struct {
	Principal string
	// Token is the key itself; File, in its place, a file that has it, and may have
	// a line break behind it. It is read again when it changes.
	Token, File string
}

// Keys are the keys of all who may call. Methods may be called concurrently.
type Keys struct {
	log   *slog.Logger
	salt  [32]byte
	known atomic.Pointer[[]known] // as keys
	next  atomic.Int64            // when the files are looked at again, Unix nanoseconds; 0 means never

	turn  sync.Mutex // guards the rest; no request waits for it, since it is held while they are read
	keys  []Key
	files []*keyFile // as keys; nil for one that is in no file
	said  []string   // as keys: what was logged last
	heed  func(principal string, good bool)
}

// known is one key as it is compared.
type known struct {
	principal string
	sum       [sha256.Size]byte
	usable    int // 1, or 0
}

// New reads the files of the keys. A key that cannot be used keeps its principal
// out, and nobody else; the log says so.
func New(keys []Key, log *slog.Logger) *Keys {
	k := &Keys{log: log, heed: func(string, bool) {}}
	_, _ = rand.Read(k.salt[:]) // it never fails
	k.Set(keys)
	return k
}

// Set has those be the keys from now on. Who is heeded (see Heed) hears of principals
// that have none any more, and of those that have one now.
func (k *Keys) Set(keys []Key) {
	k.turn.Lock()
	defer k.turn.Unlock()
	files, said := make([]*keyFile, len(keys)), make([]string, len(keys))
	next := int64(0)
	for i := range keys {
		if keys[i].File != "" {
			files[i] = &keyFile{path: keys[i].File}
			next = time.Now().Add(lookEvery).UnixNano()
		}
		for j := range k.keys {
			if k.keys[j] == keys[i] { // it is not said again what is wrong with it
				said[i] = k.said[j]
			}
		}
	}
	k.keys, k.files, k.said = keys, files, said
	k.look()
	k.next.Store(next)
}

// Heed has f called when a principal has no key any more that can be used, after
// the last request was let in by one; and with good when it has one again, before
// the first is. One that gets another key in the place of its own has one all the
// time. f must not show a key.
func (k *Keys) Heed(f func(principal string, good bool)) {
	k.turn.Lock()
	defer k.turn.Unlock()
	k.heed = f
}

// Follow looks at the files until ctx ends, so that it does not take a request to
// notice that one has changed.
func (k *Keys) Follow(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if k.next.Load() == 0 {
				continue // there are none
			}
			k.turn.Lock()
			k.lookNow()
			k.turn.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// lookEvery is how long a file may have changed before it is noticed.
const lookEvery = 2 * time.Second

// find returns whose key it is that has that sum.
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

// The headers that show a key, in the form that Go uses as key.
const (
	authorization = "Authorization"
	apiKey        = "X-Api-Key"
)

// shown returns the key that the headers show. Who shows two of them cannot be
// told, and neither can whoever is on the way that looks at the other one.
func shown(h http.Header) (string, error) {
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

// sum is what is compared in place of a key.
func (k *Keys) sum(key string) [sha256.Size]byte {
	var room [4 << 10]byte // tokens are longer than keys
	return sha256.Sum256(append(append(room[:0], k.salt[:]...), key...))
}

// Sum stands for a key that was shown. It is of use in this process only, and nobody can
// make the key of it.
type Sum [sha256.Size]byte

// Key returns whose a key is, and its sum. ok is false for what is no key.
func (k *Keys) Key(text string) (principal string, sum Sum, ok bool) {
	k.refresh()
	sum = k.sum(text)
	principal, ok = k.find(sum)
	return principal, sum, ok
}

// Holder returns whose the key of that sum is now. ok is false if it was taken away.
func (k *Keys) Holder(sum Sum) (principal string, ok bool) {
	k.refresh()
	return k.find(sum)
}

// Shows reports whether a request has a header with a key, whatever that is.
func Shows(h http.Header) bool { return len(h[authorization])+len(h[apiKey]) > 0 }

type contextKey struct{}

// WithPrincipal returns a context of a request whose caller is known.
func WithPrincipal(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, contextKey{}, name)
}

// Principal returns the caller of a request; empty where nobody asks who that
// is, and everybody is one.
func Principal(ctx context.Context) string {
	switch v := ctx.Value(contextKey{}).(type) {
	case string:
		return v
	case *Caller:
		return v.Principal
	}
	return ""
}

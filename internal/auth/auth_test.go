package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/internal/auth/token"
)

const (
	alpha = "alpha-0123456789abcdef"
	beta  = "beta-0123456789abcdef"
)

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// The principal that the headers of a request show.
func TestPrincipal(t *testing.T) {
	k := New([]Key{{Principal: "a", Token: alpha}, {Principal: "b", Token: beta}, {Principal: "weak", Token: "short"}}, slog.New(slog.DiscardHandler))
	for _, tc := range []struct {
		name string
		h    http.Header
		want string
		err  error
	}{
		{"nothing", headers(), "", ErrMissing},
		{"other headers", headers("Cookie", "token="+alpha, "Proxy-Authorization", "Bearer "+alpha), "", ErrMissing},
		{"a bearer token", headers("Authorization", "Bearer "+alpha), "a", nil},
		{"another one", headers("Authorization", "Bearer "+beta), "b", nil},
		{"a scheme in other letters", headers("Authorization", "bEARER "+alpha), "a", nil},
		{"more spaces", headers("Authorization", "Bearer   "+alpha), "a", nil},
		{"an API key", headers("X-API-Key", beta), "b", nil},
		{"both, and the same", headers("X-API-Key", beta, "Authorization", "Bearer "+beta), "b", nil},
		{"both, of two", headers("X-API-Key", alpha, "Authorization", "Bearer "+beta), "", ErrInvalid},
		{"a good key, and one of another scheme", headers("X-API-Key", alpha, "Authorization", "Basic YTpi"), "", ErrInvalid},
		{"two bearer tokens", headers("Authorization", "Bearer "+alpha, "Authorization", "Bearer "+alpha), "", ErrInvalid},
		{"two API keys", headers("X-API-Key", alpha, "X-API-Key", alpha), "", ErrInvalid},
		{"two in one line", headers("Authorization", "Bearer "+alpha+", Bearer "+alpha), "", ErrInvalid},
		{"another scheme", headers("Authorization", "Basic "+alpha), "", ErrInvalid},
		{"no scheme", headers("Authorization", alpha), "", ErrInvalid},
		{"no token", headers("Authorization", "Bearer"), "", ErrInvalid},
		{"an empty token", headers("Authorization", "Bearer "), "", ErrInvalid},
		{"an empty API key", headers("X-API-Key", ""), "", ErrInvalid},
		{"the beginning of one", headers("X-API-Key", alpha[:20]), "", ErrInvalid},
		{"one and more", headers("X-API-Key", alpha+"0"), "", ErrInvalid},
		{"other letters", headers("X-API-Key", strings.ToUpper(alpha)), "", ErrInvalid},
		{"a long one", headers("X-API-Key", strings.Repeat("x", 60<<10)), "", ErrInvalid},
		{"one that can be guessed", headers("X-API-Key", "short"), "", ErrInvalid},
		{"the name of a principal", headers("X-API-Key", "a"), "", ErrInvalid},
	} {
		if got, err := k.Principal(tc.h); got != tc.want || err != tc.err {
			t.Errorf("%s: %q, %v, want %q, %v", tc.name, got, err, tc.want, tc.err)
		}
	}
}

// A sum reveals neither a key nor its length, and differs in another process.
func TestSum(t *testing.T) {
	keys := []Key{{Principal: "a", Token: alpha}}
	one, two := New(keys, slog.New(slog.DiscardHandler)), New(keys, slog.New(slog.DiscardHandler))
	if one.sum(alpha) == two.sum(alpha) {
		t.Error("a key has the same sum in two processes")
	}
	if strings.Contains(string((*one.known.Load())[0].sum[:]), alpha[:4]) {
		t.Error("a sum has the key in it")
	}
}

// Principal is Door.Caller of a Door for keys alone.
func (k *Keys) Principal(h http.Header) (string, error) {
	c, err := NewAuthenticator(k, nil, nil, slog.New(slog.DiscardHandler)).Caller(context.Background(), h, token.Resource{})
	return c.Principal, err
}

// A lookup is cheap: each request does one.
func BenchmarkPrincipal(b *testing.B) {
	k := New([]Key{{Principal: "a", Token: alpha}, {Principal: "b", Token: beta}, {Principal: "c", Token: alpha + beta}}, slog.New(slog.DiscardHandler))
	a := NewAuthenticator(k, nil, nil, slog.New(slog.DiscardHandler))
	h := headers("Authorization", "Bearer "+beta)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Caller(b.Context(), h, token.Resource{}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestContext(t *testing.T) {
	if got := Principal(context.Background()); got != "" {
		t.Errorf("the principal of nobody is %q", got)
	}
	if got := Principal(WithPrincipal(context.Background(), "a")); got != "a" {
		t.Errorf("the principal is %q, want a", got)
	}
}

// writer returns a function that writes a key file; "" removes the file.
func writer(t *testing.T, path string) func(text string) {
	return func(text string) {
		t.Helper()
		err := os.WriteFile(path, []byte(text), 0o600)
		if text == "" {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A changed key file is read again. An unusable one locks out its principal alone, and is logged once, without the
// key.
func TestFiles(t *testing.T) {
	const fresh = "fresh-0123456789abcdef"
	path := filepath.Join(t.TempDir(), "a.key")
	write := writer(t, path)
	write(alpha + "\n")
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		k := New([]Key{{Principal: "a", File: path}, {Principal: "b", Token: beta}}, slog.New(slog.NewTextHandler(&out, nil)))
		who := func(key string) string {
			t.Helper()
			if got, _ := k.Principal(headers("X-API-Key", beta)); got != "b" {
				t.Errorf("b is %q", got)
			}
			got, _ := k.Principal(headers("X-API-Key", key))
			return got
		}
		later := func() { time.Sleep(checkEvery) }
		if got := who(alpha); got != "a" || out.Len() > 0 {
			t.Errorf("at first: %q, and the log has %q", got, &out)
		}
		write(fresh + "\r\n")
		if got := who(alpha); got != "a" {
			t.Errorf("before it is time to look: %q", got)
		}
		later()
		if old, now := who(alpha), who(fresh); old != "" || now != "a" || out.Len() > 0 {
			t.Errorf("after a change: the old key is %q and the new one %q; the log has %q", old, now, &out)
		}
		for _, tc := range []struct{ name, text, log string }{
			{"empty", "\n", "is empty"},
			{"short", "0123456789abcde\n", "at least 16 characters"},
			{"two lines", fresh + "\n" + fresh + "\n", "visible ASCII"},
			{"long", strings.Repeat("x", maxKeyFile+1), "larger than 16 KiB"},
			{"of another", beta, "is also the key of b"},
		} {
			write(tc.text)
			out.Reset()
			for range 3 {
				later()
				if got := who(strings.TrimSpace(tc.text)); got == "a" || who(fresh) != "" || who("") != "" {
					t.Errorf("%s: a is let in", tc.name)
				}
			}
			if strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), tc.log) || !strings.Contains(out.String(), "principal=a") {
				t.Errorf("%s: the log has %q, want one line with %q", tc.name, &out, tc.log)
			}
		}
		write(fresh)
		later()
		out.Reset()
		if got := who(fresh); got != "a" {
			t.Errorf("mended: %q", got)
		}
		write("")
		for range 2 {
			later()
			if got := who(fresh); got != "" {
				t.Errorf("removed: %q", got)
			}
		}
		if strings.Count(out.String(), "does not exist") != 1 {
			t.Errorf("removed: the log has %q", &out)
		}
		for _, key := range []string{alpha, beta, fresh} {
			if strings.Contains(out.String(), key) {
				t.Errorf("the log has a key: %q", &out)
			}
		}
	})
}

// The loss of a principal's last key is reported once, when the files are checked, also without requests. Replacing a
// key is no loss.
func TestHeed(t *testing.T) {
	const fresh = "fresh-0123456789abcdef"
	path := filepath.Join(t.TempDir(), "a.key")
	write := writer(t, path)
	for _, second := range []bool{false, true} { // a has two keys for a time
		write(alpha)
		keys := []Key{{Principal: "a", File: path}, {Principal: "b", Token: beta}}
		if second {
			keys = append(keys, Key{Principal: "a", Token: fresh + "2"})
		}
		synctest.Test(t, func(t *testing.T) {
			k := New(keys, slog.New(slog.DiscardHandler))
			var mu sync.Mutex // guards got
			var got []string
			k.OnChange(func(principal string, good bool) {
				mu.Lock()
				defer mu.Unlock()
				_, found := k.find(k.sum(alpha)) // the principal is not admitted during the call
				got = append(got, fmt.Sprint(principal, " ", good, " ", found))
			})
			ctx, cancel := context.WithCancel(t.Context())
			go k.Watch(ctx)
			step := func(what string, want ...string) {
				t.Helper()
				if second {
					want = nil
				}
				time.Sleep(checkEvery)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(got, want) {
					t.Errorf("%s: told %q, want %q", what, got, want)
				}
				got = nil
			}
			step("nothing")
			write(fresh)
			step("another key")
			write("short")
			step("a key of no use", "a false false")
			write("")
			step("no file")
			write(alpha)
			step("a key again", "a true false")
			write("")
			step("gone again", "a false false")
			cancel()
			synctest.Wait()
		})
	}
}

// A change of the files is noticed within checkEvery, also if requests check them in between.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.key")
	write := writer(t, path)
	write(alpha)
	synctest.Test(t, func(t *testing.T) {
		k := New([]Key{{Principal: "a", File: path}}, slog.New(slog.DiscardHandler))
		var lost atomic.Bool
		k.OnChange(func(string, bool) { lost.Store(true) })
		ctx, cancel := context.WithCancel(t.Context())
		time.Sleep(checkEvery / 2)
		go k.Watch(ctx)
		time.Sleep(checkEvery/2 + time.Millisecond)
		if _, err := k.Principal(headers("X-API-Key", alpha)); err != nil {
			t.Fatal(err)
		}
		write("")
		time.Sleep(checkEvery)
		synctest.Wait()
		if !lost.Load() {
			t.Errorf("it is not known after %v", checkEvery)
		}
		cancel()
	})
}

// If two principals have the same key, the first one gets it.
func TestSameKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	writer(t, path)(alpha)
	var out bytes.Buffer
	k := New([]Key{{Principal: "a", Token: alpha}, {Principal: "b", File: path}, {Principal: "a", Token: beta}}, slog.New(slog.NewTextHandler(&out, nil)))
	for _, key := range []string{alpha, beta} {
		if got, err := k.Principal(headers("X-API-Key", key)); got != "a" || err != nil {
			t.Errorf("the key shows %q, %v, want a", got, err)
		}
	}
	if !strings.Contains(out.String(), "is also the key of a") || strings.Contains(out.String(), alpha) {
		t.Errorf("the log has %q", &out)
	}
}

// A path that is no regular file, and a file that is too large, are not read.
func TestRead(t *testing.T) {
	if _, err := Read(t.TempDir()); err == nil || err.Error() != "is not a file" {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Read(os.DevNull); err == nil || err.Error() != "is not a file" {
		t.Errorf("a device: %v", err)
	}
}

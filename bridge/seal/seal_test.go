package seal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

func newKeys(t testing.TB) *Keys {
	t.Helper()
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func fromSecrets(t testing.TB, secrets ...[]byte) *Keys {
	t.Helper()
	k, err := FromSecrets(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func secret(c byte) []byte { return bytes.Repeat([]byte{c}, MinSecret) }

func opens(k *Keys, kind, token, want string) bool {
	got, err := k.Open(kind, token)
	return err == nil && string(got) == want
}

func TestSeal(t *testing.T) {
	k := newKeys(t)
	for _, payload := range []string{"", "x", strings.Repeat("long ", 10_000)} {
		token := k.Seal("state", []byte(payload))
		if !opens(k, "state", token, payload) {
			t.Errorf("%.20q does not come back", payload)
		}
		if again := k.Seal("state", []byte(payload)); again == token {
			t.Error("two tokens are the same")
		}
		if strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Errorf("the token %.60s is not base64url", token)
		}
		if !opens(k, "state", token, payload) {
			t.Error("it opens once only")
		}
	}
}

// Nothing but the very token opens, and one error stands for all (R-123,
//
func TestForged(t *testing.T) {
	k := newKeys(t)
	token := k.Seal("state", []byte("payload"))
	forged := map[string]string{
		"empty": "", "no base64": "!", "short": "AQ", "padded": token + "=", "more": token + "AAAA",
		"a line break": token[:8] + "\n" + token[8:], "a line break behind": token + "\r\n",
		"another process's": newKeys(t).Seal("state", []byte("payload")),
		"too long":          strings.Repeat("A", MaxToken+1),
	}
	for n := range len(token) {
		forged[fmt.Sprint("cut at ", n)] = token[:n]
	}
	b, err := encoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(b) * 8 {
		c := bytes.Clone(b)
		c[i/8] ^= 1 << (i % 8)
		forged[fmt.Sprint("bit ", i)] = encoding.EncodeToString(c)
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := token[len(token)-1]
	for i := range len(alphabet) { // the bits that padding leaves unused too
		if alphabet[i] != last {
			forged[fmt.Sprint("last is ", alphabet[i:i+1])] = token[:len(token)-1] + alphabet[i:i+1]
		}
	}
	for name, f := range forged {
		if got, err := k.Open("state", f); err != ErrForged || got != nil {
			t.Errorf("%s: Open = %q, %v", name, got, err)
		}
	}
	for _, kind := range []string{"", "stat", "states", "task"} {
		if got, err := k.Open(kind, token); err != ErrForged || got != nil {
			t.Errorf("as %q: Open = %q, %v", kind, got, err)
		}
	}
}

func TestMaxToken(t *testing.T) {
	k := newKeys(t)
	large := bytes.Repeat([]byte("x"), MaxToken/4*3-prefix-28)
	token := k.Seal("state", large)
	if len(token) != MaxToken || !opens(k, "state", token, string(large)) {
		t.Errorf("a token of %d bytes does not open", len(token))
	}
	token = k.Seal("state", append(large, 'x'))
	if _, err := k.Open("state", token); len(token) != MaxToken+2 || err != ErrForged {
		t.Errorf("a token of %d bytes: %v", len(token), err)
	}
}

func TestFromSecrets(t *testing.T) {
	a, b := fromSecrets(t, secret('a')), fromSecrets(t, secret('b'))
	both, other := fromSecrets(t, secret('b'), secret('a')), fromSecrets(t, secret('a'))
	byA, byB, byBoth := a.Seal("s", []byte("A")), b.Seal("s", []byte("B")), both.Seal("s", []byte("both"))
	for _, tc := range []struct {
		name string
		k    *Keys
		in   string
		ok   bool
	}{
		{"another instance", other, byA, true},
		{"the old secret still opens", both, byA, true},
		{"the new one opens", both, byB, true},
		{"the first one seals", b, byBoth, true},
		{"the second one does not seal", a, byBoth, false},
		{"another secret", a, byB, false},
	} {
		if _, err := tc.k.Open("s", tc.in); (err == nil) != tc.ok || err != nil && err != ErrForged {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestFromSecretsRefuses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		secrets [][]byte
		want    string
	}{
		{"none", nil, "at least one is needed"},
		{"empty", [][]byte{{}}, "secret 1 has 0 bytes: at least 32"},
		{"short", [][]byte{secret('a'), []byte("hunter2")}, "secret 2 has 7 bytes: at least 32"},
		{"the same", [][]byte{secret('a'), secret('b'), secret('a')}, "secret 3 is secret 1 again"},
	} {
		k, err := FromSecrets(tc.secrets...)
		if k != nil || err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error with %q", tc.name, err, tc.want)
		}
	}
}

func TestRotate(t *testing.T) {
	for name, k := range map[string]*Keys{"own": newKeys(t), "secrets": fromSecrets(t, secret('a'))} {
		var tokens []string
		for i := range 6 {
			if i > 0 {
				k.Rotate()
			}
			tokens = append(tokens, k.Seal("s", []byte{byte(i)}))
		}
		for i, token := range tokens {
			want := i >= 2 || name == "secrets" && i == 0 // the newest and three before it; a secret's always
			if got := opens(k, "s", token, string([]byte{byte(i)})); got != want {
				t.Errorf("%s: token %d opens: %t, want %t", name, i, got, want)
			}
		}
		if name == "secrets" && opens(fromSecrets(t, secret('a')), "s", tokens[5], "\x05") {
			t.Error("after Rotate the secret still seals")
		}
	}
}

// A token opens while keys come, as long as not too many did.
func TestConcurrent(t *testing.T) {
	k := newKeys(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if i == 0 {
				k.Rotate()
				k.Rotate()
				return
			}
			for n := range 200 {
				payload := fmt.Sprint(i, n)
				if token := k.Seal("s", []byte(payload)); !opens(k, "s", token, payload) {
					t.Errorf("%s does not come back", payload)
				}
			}
		})
	}
	wg.Wait()
}

// Keys show nothing of themselves wherever they are printed.
func TestPrint(t *testing.T) {
	k := fromSecrets(t, secret('a'))
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "keys", k)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "keys", k)
	for _, s := range []string{fmt.Sprint(k), fmt.Sprintf("%+v", k), fmt.Sprintf("%#v", k), fmt.Sprintf("%x", k)} {
		if s != "seal.Keys" {
			t.Errorf("printed: %s", s)
		}
	}
	if len(log.String()) > 300 || strings.Contains(log.String(), "aead") {
		t.Errorf("logged: %s", log.String())
	}
}

func FuzzOpen(f *testing.F) {
	k := fromSecrets(f, secret('a'))
	f.Add("s", k.Seal("s", []byte("payload")))
	f.Add("", k.Seal("", nil))
	f.Add("s", "AQ")
	f.Fuzz(func(t *testing.T, kind, token string) {
		payload, err := k.Open(kind, token)
		if err == nil { // only what was sealed above, or again by the fuzzer's seeds
			if again := k.Seal(kind, payload); len(again) != len(token) {
				t.Fatalf("%q opens as %q, which seals to %q", token, payload, again)
			}
		} else if !errors.Is(err, ErrForged) || payload != nil {
			t.Fatalf("Open(%q) = %q, %v", token, payload, err)
		}
		if sealed := k.Seal(kind, []byte(token)); len(sealed) <= MaxToken && !opens(k, kind, sealed, token) {
			t.Fatalf("%q does not come back", token)
		}
	})
}

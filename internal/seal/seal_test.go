package seal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func newKey(t testing.TB) *Key {
	t.Helper()
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func opens(k *Key, kind, token, want string) bool {
	got, err := k.Open(kind, token)
	return err == nil && string(got) == want
}

func TestSeal(t *testing.T) {
	k := newKey(t)
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

// Only the unchanged token opens, and all others give the same error.
func TestForged(t *testing.T) {
	k := newKey(t)
	token := k.Seal("state", []byte("payload"))
	forged := map[string]string{
		"empty": "", "no base64": "!", "short": "AQ", "padded": token + "=", "more": token + "AAAA",
		"a line break": token[:8] + "\n" + token[8:], "a line break behind": token + "\r\n",
		"another process's": newKey(t).Seal("state", []byte("payload")),
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
	for i := range len(alphabet) { // also the bits that padding leaves unused
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
	k := newKey(t)
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

// A printed key shows nothing of itself.
func TestPrint(t *testing.T) {
	k := newKey(t)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "key", k)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "key", k)
	for _, s := range []string{fmt.Sprint(k), fmt.Sprintf("%+v", k), fmt.Sprintf("%#v", k), fmt.Sprintf("%x", k)} {
		if s != "seal.Key" {
			t.Errorf("printed: %s", s)
		}
	}
	if len(log.String()) > 300 || strings.Contains(log.String(), "aead") {
		t.Errorf("logged: %s", log.String())
	}
}

func FuzzOpen(f *testing.F) {
	k := newKey(f)
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

package front

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
)

// A client whose document has keys authenticates with an assertion, which works once (RFC 7523). Nobody else can use
// its codes and refresh tokens. Other clients need none.
func TestDocumentKeys(t *testing.T) {
	const id, keysAt = "https://app.example.com/client.json", "https://app.example.com/keys.json"
	for _, apart := range []bool{false, true} { // the keys are in another document
		fronted(t, nil, func(t *testing.T, r *rig) {
			key, next := authtest.NewKey(t, "1", "ES256"), authtest.NewKey(t, "2", "ES256")
			keys := map[string]any{"keys": []any{key.JWK(t)}}
			fails := 0
			r.docs.Put("app.example.com", http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				m := map[string]any{"client_id": id, "client_name": "The app", "redirect_uris": []string{back}, "token_endpoint_auth_method": "private_key_jwt"}
				if fails > 0 {
					w.WriteHeader(500)
					return
				}
				switch {
				case q.URL.Path == "/keys.json":
					m = keys
				case apart:
					m["jwks_uri"] = keysAt
				default:
					m["jwks"] = keys
				}
				w.Header().Set("Cache-Control", "max-age=86400")
				oauthtest.JSON(w, 200, m)
			}))
			n := 0
			signed := func(k *authtest.Key, changes ...authtest.Claims) string {
				n++
				c := authtest.Claims{"iss": id, "sub": id, "aud": root, "jti": fmt.Sprint(n), "exp": time.Now().Unix() + 60}
				for _, change := range changes {
					for name, v := range change {
						c[name] = v
					}
				}
				return k.Sign(t, authtest.Claims{"typ": "JWT"}, c)
			}
			show := func(f url.Values, text string) url.Values {
				f.Set("client_assertion_type", assertion.Type)
				f.Set("client_assertion", text)
				f.Del("client_id") // the assertion names the client
				return f
			}
			code := r.browser().signIn(ask(id)).Get("code")
			for name, f := range map[string]url.Values{
				"nothing": form(id, code), "of another type": form(id, code, "client_assertion_type", "x", "client_assertion", signed(key)),
				"another key": show(form(id, code), signed(next)), "for somebody else": show(form(id, code), signed(key, authtest.Claims{"aud": provider})),
				"expired": show(form(id, code), signed(key, authtest.Claims{"exp": time.Now().Unix() - 60})),
			} {
				r.faults(name, f, "invalid_client")
			}
			once := signed(key)
			_, refresh := r.granted(show(form(id, code), once))
			for name, tc := range map[string]struct {
				f    url.Values
				want string
			}{
				"without it": {again(id, refresh), "invalid_client"}, "the same once more": {show(again(id, refresh), once), "invalid_client"},
			} {
				r.faults("to renew, "+name, tc.f, tc.want)
			}
			_, refresh = r.granted(show(again(id, refresh), signed(key)))
			// The client has new keys: they work within minutes, and the old ones no more.
			keys = map[string]any{"keys": []any{next.JWK(t)}}
			time.Sleep(keysMost + time.Second)
			r.faults("by a key that was taken back", show(again(id, refresh), signed(key)), "invalid_client")
			_, refresh = r.granted(show(again(id, refresh), signed(next)))
			// Keys that cannot be fetched for long do not end the login.
			fails = 1
			time.Sleep(2 * time.Hour)
			r.faults("without the keys", show(again(id, refresh), signed(next)), "temporarily_unavailable")
			fails = 0
			time.Sleep(time.Minute)
			revoke := func(f url.Values, want int) {
				t.Helper()
				f.Set("token", refresh)
				if a := r.do("POST", "/oauth/revoke", f); a.Code != want {
					t.Errorf("revoke: %d %s, want %d", a.Code, a.Body, want)
				}
			}
			revoke(url.Values{"client_id": {id}}, 401)
			_, refresh = r.granted(show(again(id, refresh), signed(next)))
			revoke(show(url.Values{}, signed(next)), 200)
			r.faults("after its end", show(again(id, refresh), signed(next)), "invalid_grant")
		})
	}
}

// A document must have its keys or their address.
func TestDocumentKeysMistakes(t *testing.T) {
	const id = "https://app.example.com/client.json"
	fronted(t, nil, func(t *testing.T, r *rig) {
		key := authtest.NewKey(t, "1", "ES256").JWK(t)
		keys := map[string]any{"keys": []any{key}}
		for name, tc := range map[string]struct {
			has  map[string]any
			want string
		}{
			"no keys": {map[string]any{}, "jwks or jwks_uri"}, "both": {map[string]any{"jwks": keys, "jwks_uri": "https://a.example.com/k"}, "jwks or jwks_uri"},
			"http": {map[string]any{"jwks_uri": "http://app.example.com/k"}, "must be https"}, "keys that are none": {map[string]any{"jwks": map[string]any{"keys": []any{}}}, "has no usable key"},
			"good": {map[string]any{"jwks": keys}, "The app"}, "the other is null": {map[string]any{"jwks": keys, "jwks_uri": nil}, "The app"},
			"apart": {map[string]any{"jwks": nil, "jwks_uri": "https://app.example.com/k"}, "The app"}, "null": {map[string]any{"jwks": nil}, "jwks or jwks_uri"},
		} {
			time.Sleep(time.Hour) // the cached document has expired
			r.docs.Put("app.example.com", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				m := map[string]any{"client_id": id, "client_name": "The app", "redirect_uris": []string{back}, "token_endpoint_auth_method": "private_key_jwt"}
				for n, v := range tc.has {
					m[n] = v
				}
				oauthtest.JSON(w, 200, m)
			}))
			if a := r.do("GET", "/authorize?"+ask(id).Encode(), nil); !strings.Contains(a.Body.String(), tc.want) {
				t.Errorf("%s: %d %s", name, a.Code, a.Body)
			}
		}
		a := r.do("GET", "/.well-known/oauth-authorization-server", nil)
		if got := gjson.Get(a.Body.String(), "token_endpoint_auth_methods_supported").Raw; got != `["none","private_key_jwt"]` {
			t.Errorf("the metadata says %s", got)
		}
	})
}

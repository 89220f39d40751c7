package login_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/login"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
)

// on is a server and its authorization server without a network, and a person with a device.
type on struct {
	net    *oauthtest.Net
	issuer *oauthtest.Issuer
	store  *login.Store
	log    bytes.Buffer
	shown  []string
}

func newDevice(t *testing.T, answers func(n int) string) *on {
	o := &on{net: &oauthtest.Net{}, issuer: oauthtest.NewIssuer(t, "https://idp.example.com"), store: login.Open(filepath.Join(t.TempDir(), "logins"))}
	o.issuer.Device = answers
	o.net.Put("idp.example.com", o.issuer)
	o.net.Put("tools.example.com", &oauthtest.Resource{URL: "https://tools.example.com/mcp", Issuer: o.issuer})
	return o
}

func (o *on) person(t *testing.T, change func(*login.Options)) *login.Person {
	u, err := url.Parse("https://tools.example.com/mcp")
	if err != nil {
		t.Fatal(err)
	}
	options := login.Options{
		Options: oauth.Options{Settings: oauth.Settings{Login: true}, Server: u, Transport: o.net, Log: slog.New(slog.NewTextHandler(&o.log, nil))},
		Store:   o.store, Device: func(address, code, both string) { o.shown = append(o.shown, address+" "+code+" "+both) },
	}
	if change != nil {
		change(&options)
	}
	p := login.New(options)
	t.Cleanup(p.Close)
	return p
}

// I-221: a person signs in on another device by a code. The bridge polls at the interval that the authorization
// server sets. The result is a login like any other.
func TestDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newDevice(t, func(n int) string {
			return map[int]string{1: "authorization_pending", 2: "slow_down", 3: "authorization_pending"}[n]
		})
		began := time.Now()
		l, err := o.person(t, nil).SignIn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != (1+1+6+6)*time.Second {
			t.Errorf("it took %v", took)
		}
		if want := "https://idp.example.com/activate BCDF-GHJK https://idp.example.com/activate?user_code=BCDF-GHJK"; len(o.shown) != 1 || o.shown[0] != want {
			t.Errorf("the person was shown %q", o.shown)
		}
		if g, ok := o.issuer.Good(l.Access); !ok || g.Resource != "https://tools.example.com/mcp" || l.Refresh == "" || !l.Client.Registered || l.Client.Redirect != "" {
			t.Errorf("the login is %+v for %+v", l, g)
		}
		if _, err := o.person(t, nil).SignIn(t.Context()); err != nil || o.issuer.Asked("/register") != 1 {
			t.Errorf("again: %v, %d registrations", err, o.issuer.Asked("/register"))
		}
		o.issuer.Forget()
		if l, err := o.person(t, nil).SignIn(t.Context()); err != nil || o.issuer.Asked("/register") != 2 || l.Access == "" {
			t.Errorf("after it has forgotten the bridge: %v, %d registrations", err, o.issuer.Asked("/register"))
		}
		if strings.Contains(o.log.String(), "device-") {
			t.Error("the log has the code of the device")
		}
	})
}

// I-221: without a browser, a sign-in that a server needs is done by device. Requests that wait too long get the
// address if they are the person's; the sign-in continues.
func TestDeviceWhenAsked(t *testing.T) {
	for _, own := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			d := newDevice(t, func(int) string {
				if time.Since(began) < 7*time.Minute {
					return "authorization_pending"
				}
				return ""
			})
			p := d.person(t, func(o *login.Options) { o.Own = own })
			refused := func() (bool, error) {
				return p.Refused(t.Context(), "", http.Header{"Www-Authenticate": {"Bearer"}}, http.StatusUnauthorized, 0)
			}
			again, err := refused()
			f, ok := errors.AsType[*oauth.Failure](err)
			if again || !ok || time.Since(began) < 40*time.Second || strings.Contains(f.Public, "https://idp.example.com/activate?user_code=BCDF-GHJK") != own {
				t.Errorf("own %t: %t, %v after %v", own, again, err, time.Since(began))
			}
			time.Sleep(8 * time.Minute)
			if token, err := p.Token(t.Context()); err != nil || token == "" || len(d.shown) != 1 {
				t.Errorf("own %t: when the person has signed in: %q %v, shown %d times", own, token, err, len(d.shown))
			}
		})
	}
}

// I-221: denial, an expired code, and an authorization server without the flow, or one that is down for a while.
func TestDeviceFails(t *testing.T) {
	for _, tc := range []struct {
		name    string
		answers func(int) string
		change  func(*on)
		want    string
		took    time.Duration
	}{
		{"denied", func(int) string { return "access_denied" }, nil, "the sign-in was refused", time.Second},
		{"expired", func(int) string { return "expired_token" }, nil, "nobody signed in within 10m0s", time.Second},
		{"nobody", func(int) string { return "authorization_pending" }, nil, "nobody signed in within 10m0s", 10 * time.Minute},
		{"nonsense", func(int) string { return "invalid_grant" }, nil, "invalid_grant", time.Second},
		{"none", nil, nil, "has no device flow", 0},
		{"no address", func(int) string { return "" }, func(o *on) {
			o.issuer.Answer("/device", func(w http.ResponseWriter, _ *http.Request) {
				oauthtest.JSON(w, 200, map[string]any{"device_code": "d", "user_code": "u", "verification_uri": "http://evil.example.com/"})
			})
		}, "must have verification_uri", 0},
		{"registers nobody", func(int) string { return "" }, func(o *on) {
			o.issuer.Change = func(m map[string]any) { delete(m, "registration_endpoint") }
		}, "register a client there for the device flow", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newDevice(t, tc.answers)
				if tc.change != nil {
					tc.change(o)
				}
				began := time.Now()
				_, err := o.person(t, nil).SignIn(t.Context())
				if err == nil || !strings.Contains(err.Error(), tc.want) || time.Since(began) != tc.took {
					t.Errorf("%v after %v, want %s after %v", err, time.Since(began), tc.want, tc.took)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		o := newDevice(t, func(int) string { return "" })
		away := 0
		o.issuer.Answer("/token", func(w http.ResponseWriter, _ *http.Request) {
			if away++; away == 2 {
				o.issuer.Answer("/token", nil)
			}
			w.WriteHeader(http.StatusBadGateway)
		})
		began := time.Now()
		if _, err := o.person(t, nil).SignIn(t.Context()); err != nil || time.Since(began) != (1+2+4)*time.Second {
			t.Errorf("an authorization server that is away for a while: %v after %v", err, time.Since(began))
		}
	})
}

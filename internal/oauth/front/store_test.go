package front

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/auth/authtest"
	"github.com/mcp-bridge/bridge/internal/oauth/oauthtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

var errAway = errors.New("no route")

// hooked is a store that tells on of each request, before or after it is executed. An error of on is its answer.
type hooked struct {
	*Memory
	on    func(call, key string, value []byte) error // may be nil
	after bool
}

func (h *hooked) do(call, key string, value []byte, execute func() error) error {
	if h.on == nil {
		return execute()
	}
	if h.after {
		return cmp.Or(execute(), h.on(call, key, value))
	}
	if err := h.on(call, key, value); err != nil {
		return err
	}
	return execute()
}

func (h *hooked) Get(ctx context.Context, key string) (value []byte, err error) {
	err = h.do("Get", key, nil, func() error {
		value, err = h.Memory.Get(ctx, key)
		return err
	})
	return value, err
}

func (h *hooked) Swap(ctx context.Context, key string, old, value []byte, life time.Duration) (ok bool, err error) {
	err = h.do("Swap", key, value, func() error {
		ok, err = h.Memory.Swap(ctx, key, old, value, life)
		return err
	})
	return ok, err
}

func (h *hooked) End(ctx context.Context, id string, life time.Duration) error {
	return h.do("End", id, nil, func() error { return h.Memory.End(ctx, id, life) })
}

func (h *hooked) Ended(ctx context.Context, mark string) (ids []string, next string, err error) {
	err = h.do("Ended", mark, nil, func() error {
		ids, next, err = h.Memory.Ended(ctx, mark)
		return err
	})
	return ids, next, err
}

// A lost answer of the store ends no sign-in and no login: at worst the client must try again.
func TestLostAnswers(t *testing.T) {
	for _, done := range []bool{false, true} {
		for at := 1; ; at++ {
			reached := false
			t.Run(fmt.Sprintf("done %t, request %d", done, at), func(t *testing.T) {
				var n, fails atomic.Int64
				store := &hooked{Memory: NewMemory(), after: done, on: func(call, _ string, _ []byte) error {
					if call != "Ended" && n.Add(1) == fails.Load() {
						return errAway
					}
					return nil
				}}
				fronted(t, func(o *Options) { o.Store = store }, func(t *testing.T, r *rig) {
					id, b := r.join(back), r.browser()
					fails.Store(int64(at))
					code := b.signIn(ask(id)).Get("code")
					if code == "" {
						if n.Load() != int64(at) {
							t.Fatal("no sign-in")
						}
						reached = true
						return // the client gets an error, and its user signs in again
					}
					persist := func(f url.Values) (access, refresh string) {
						for try := range 2 {
							a, next, fault := r.tokens(f)
							if fault == "" {
								return a, next
							}
							if fault != "temporarily_unavailable" || try > 0 {
								t.Fatalf("%s: %s", f.Get("grant_type"), fault)
							}
							time.Sleep(5 * time.Second)
						}
						return "", ""
					}
					_, first := persist(form(id, code))
					_, second := persist(again(id, first))
					_, last := persist(again(id, second))
					if reached = n.Load() >= int64(at); !reached {
						return
					}
					fails.Store(0)
					time.Sleep(grace + time.Second)
					access, _ := r.granted(again(id, last))
					r.counts("after all", access, true)
				})
			})
			if !reached || t.Failed() {
				if at < 12 {
					t.Errorf("the store is asked %d times only", at-1)
				}
				break
			}
		}
	}
}

// slow has its own clock.
type slow struct {
	*Memory
	mu    sync.Mutex
	ended map[string]bool // kinds whose values have expired
}

func (s *slow) Swap(ctx context.Context, key string, old, value []byte, _ time.Duration) (bool, error) {
	return s.Memory.Swap(ctx, key, old, value, 1000*time.Hour)
}

func (s *slow) Get(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended[kindOf(key)] {
		return nil, nil
	}
	return s.Memory.Get(ctx, key)
}

// Codes and the grace period of old refresh tokens end by the clock of the store: the clocks of instances may differ
// (S-014).
func TestStoreClock(t *testing.T) {
	store := &slow{Memory: NewMemory(), ended: map[string]bool{}}
	end := func(kind string) {
		store.mu.Lock()
		defer store.mu.Unlock()
		store.ended[kind] = true
	}
	fronted(t, func(o *Options) { o.Store = store }, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		code, late := b.signIn(ask(id)).Get("code"), b.signIn(ask(id)).Get("code")
		time.Sleep(2 * codeLife)
		_, first := r.granted(form(id, code))
		_, second, _ := r.tokens(again(id, first))
		time.Sleep(2 * grace)
		r.faults("a former refresh token", again(id, first), "")
		end("code")
		r.faults("a code that has ended", form(id, late), "invalid_grant")
		end("turn")
		r.faults("when the moment is over", again(id, first), "invalid_grant")
		r.faults("the login goes on", again(id, second), "invalid_grant")
	})
}

// I-106: a state works once, at any instance, and after a restart.
func TestStateOnce(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		other := newRig(t, r.p, func(o *Options) { o.Store, o.Secrets = r.o.Store, r.o.Secrets })
		to := b.agree(ask(id)).Header().Get("Location")
		first, second := r.p.signIn(t, to), r.p.signIn(t, to) // the provider has redirected twice
		var cookies []string
		for _, c := range b.jar.Cookies(at) {
			cookies = append(cookies, "Cookie", c.String())
		}
		if got := b.returns(first); got.Get("code") == "" {
			t.Fatalf("the first time: %v", got)
		}
		if a := other.do("GET", second.RequestURI(), nil, cookies...); a.Code != 403 || a.Header().Get("Location") != "" {
			t.Errorf("the second time, at another instance: %d %s", a.Code, a.Header().Get("Location"))
		}
	})
}

// A scope that the provider takes back at a renewal is taken from the client.
func TestTakenBack(t *testing.T) {
	fronted(t, func(o *Options) { o.ScopePrefix = "api://mcp/" }, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		scope := any("openid api://mcp/mcp:use api://mcp/files:write")
		noID := false
		r.p.change = func(_ url.Values, out map[string]any) {
			if out["scope"] = scope; scope == nil {
				delete(out, "scope")
			}
			if noID {
				delete(out, "id_token")
			}
		}
		set := func(to any, without bool) {
			r.p.set(func() { scope, noID = to, without })
		}
		scopes := func(access string) string {
			t.Helper()
			return strings.Join(r.verified(access).Scopes, " ")
		}
		_, refresh := r.granted(form(id, b.signIn(ask(id, "scope", "mcp:use files:write")).Get("code")))
		set("openid api://mcp/mcp:use", false)
		access, refresh, fault := r.tokens(again(id, refresh, "scope", "mcp:use files:write")) // it still asks for both
		if got := scopes(access); fault != "" || got != "mcp:use" {
			t.Errorf("renewed: %q %s", got, fault)
		}
		set(nil, false) // no scope means unchanged (RFC 6749 §6)
		access, refresh, fault = r.tokens(again(id, refresh))
		if got := scopes(access); fault != "" || got != "mcp:use" {
			t.Errorf("renewed, without a word on scopes: %q %s", got, fault)
		}
		access, _, _ = r.tokens(form(id, b.signIn(ask(id)).Get("code")))
		if got := scopes(access); got != "" || !strings.Contains(r.log.String(), "has no scope, which scope_prefix needs") {
			t.Errorf("a sign-in without a word on scopes: %q", got)
		}
		// An ID token must confirm the user once a day.
		set("api://mcp/mcp:use", true)
		for range 23 {
			time.Sleep(time.Hour)
			_, refresh = r.granted(again(id, refresh))
		}
		set("api://mcp/mcp:use", false)
		_, refresh = r.granted(again(id, refresh))
		set("api://mcp/mcp:use", true)
		time.Sleep(23 * time.Hour)
		_, refresh = r.granted(again(id, refresh))
		time.Sleep(2 * time.Hour)
		if _, _, fault = r.tokens(again(id, refresh)); fault != "invalid_grant" || !strings.Contains(r.log.String(), "sent no ID token for a day") {
			t.Errorf("after a day: %q", fault)
		}
	})
}

// One user cannot fill the store with sign-ins.
func TestSignIns(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		refused := 0
		for range 40 {
			if got := b.signIn(ask(id)); got.Get("error") == "temporarily_unavailable" {
				refused++
			}
		}
		if refused != 10 {
			t.Errorf("of 40 sign-ins %d were refused", refused)
		}
		r.p.claims = authtest.Claims{"sub": "bob"}
		if got := b.signIn(ask(id)); got.Get("code") == "" {
			t.Errorf("another user: %v", got)
		}
	})
}

// Many other logins do not revive an ended one: neither after its end nor between the first use of its token and the
// end.
func TestEnded(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		code := b.signIn(ask(id)).Get("code")
		access, _, _ := r.tokens(form(id, code))
		used, err := r.good(access, filesURL)
		if err != nil || used.Revoked() {
			t.Fatal(err)
		}
		body, err := base64.RawURLEncoding.DecodeString(strings.Split(access, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		others := func() {
			t.Helper()
			for i := range scaletest.Alone(2000, 20_001) {
				claims := fmt.Sprintf(`{"sid":"another %d","user":%q}`, i, gjson.GetBytes(body, "user").Str)
				if _, over, err := r.userClaims(gjson.Parse(claims)); err != nil || over() {
					t.Fatal(i, err)
				}
			}
		}
		others()
		if _, _, fault := r.tokens(form(id, code)); fault != "invalid_grant" { // used twice: the login ends
			t.Fatal(fault)
		}
		if _, err := r.good(access, filesURL); err == nil || !used.Revoked() {
			t.Errorf("the token of a login that has ended goes on: %v, gone %t", err, used.Revoked())
		}
		others()
		if _, err := r.good(access, filesURL); err == nil || !used.Revoked() {
			t.Errorf("the token of a login that has ended counts again: %v, gone %t", err, used.Revoked())
		}
	})
}

// watched runs Watch of fronts until stop returns.
func watched(t *testing.T, all ...*rig) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() { r.Watch(ctx) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// A login that ends at one instance ends at the others within two seconds, also without a refresh token and for
// instances that start later. If the store cannot be read, it ends once that works.
func TestEndedElsewhere(t *testing.T) {
	for _, alone := range []bool{false, true} {
		var silent atomic.Bool
		store := &hooked{Memory: NewMemory(), on: func(call, _ string, _ []byte) error {
			if call == "Ended" && silent.Load() {
				return errAway
			}
			return nil
		}}
		fronted(t, func(o *Options) { o.Store = store }, func(t *testing.T, r *rig) {
			r.p.noToken = alone
			other := newRig(t, r.p, func(o *Options) { o.Store = store })
			defer watched(t, other)()
			id, b := r.join(back), r.browser()
			login := func() string {
				access, _ := r.granted(form(id, b.signIn(ask(id)).Get("code")))
				other.counts("the token", access, true)
				return access
			}
			end := func(access string) {
				if a := r.do("POST", "/oauth/revoke", url.Values{"client_id": {id}, "token": {access}}); a.Code != 200 {
					t.Fatalf("%d %s", a.Code, a.Body)
				}
			}
			first, second, stays := login(), login(), login()
			synctest.Wait()
			end(first)
			time.Sleep(lookEvery)
			synctest.Wait()
			other.counts("the token of a login that has ended counts elsewhere", first, false)
			silent.Store(true)
			end(second)
			time.Sleep(10 * lookEvery)
			synctest.Wait()
			other.counts("nobody could know that it has ended", second, true)
			if n := strings.Count(other.log.String(), "cannot read the ended logins from its store"); n != 1 {
				t.Errorf("it is said %d times: %s", n, other.log)
			}
			silent.Store(false)
			time.Sleep(lookEvery)
			synctest.Wait()
			later := newRig(t, r.p, func(o *Options) { o.Store = store })
			for text, want := range map[string]bool{first: false, second: false, stays: true} {
				for name, at := range map[string]*rig{"here": r, "elsewhere": other, "later": later} {
					if _, err := at.good(text, filesURL); (err == nil) != want {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
		})
	}
}

// A login ends even if the store does not record that, because it is full, or does not remove it: the rest is done
// when the store works again.
func TestEndedLater(t *testing.T) {
	store, notes, removes := full()
	fronted(t, func(o *Options) { o.Store = store }, func(t *testing.T, r *rig) {
		other := newRig(t, r.p, func(o *Options) { o.Store = store })
		defer watched(t, r, other)()
		id, b := r.join(back), r.browser()
		signOut := func(text string) int {
			return r.do("POST", "/oauth/revoke", url.Values{"client_id": {id}, "token": {text}}).Code
		}
		for name, tc := range map[string]struct {
			fails       *atomic.Bool
			theft, goes bool // the login ends at once
		}{"no note": {notes, false, true}, "no note of a theft": {notes, true, true}, "not removed": {removes, false, false}} {
			access, refresh := r.granted(form(id, b.signIn(ask(id)).Get("code")))
			other.counts("the token", access, true)
			last := refresh
			if tc.theft {
				_, last = r.granted(again(id, refresh))
				time.Sleep(grace + time.Second)
			}
			tc.fails.Store(true)
			if tc.theft {
				r.faults(name, again(id, refresh), "temporarily_unavailable")
			} else if got := signOut(last); got != 503 {
				t.Errorf("%s: %d", name, got)
			}
			r.counts(name+": the access token counts here", access, false)
			if tc.goes {
				r.faults(name+": the refresh token", again(id, last), "invalid_grant")
				time.Sleep(2 * lookEvery)
				if got := signOut(last); got != 503 {
					t.Errorf("%s: %d, and others do not know of it", name, got)
				}
			}
			tc.fails.Store(false)
			time.Sleep(3 * lookEvery)
			synctest.Wait()
			other.counts(name+": the access token counts elsewhere", access, false)
			other.faults(name+": the refresh token later", again(id, last), "invalid_grant")
			if got := signOut(last); got != 200 {
				t.Errorf("%s: later %d", name, got)
			}
		}
	})
}

// A process that stops records the owed endings a last time, and does not wait long for a store that still fails.
func TestEndedAtStop(t *testing.T) {
	for name, lasts := range map[string]bool{"the store is back": false, "it is not": true} {
		t.Run(name, func(t *testing.T) {
			store, notes, _ := full()
			fronted(t, func(o *Options) { o.Store = store }, func(t *testing.T, r *rig) {
				stop := watched(t, r)
				id := r.join(back)
				access, refresh := r.granted(form(id, r.browser().signIn(ask(id)).Get("code")))
				notes.Store(true)
				if got := r.do("POST", "/oauth/revoke", url.Values{"client_id": {id}, "token": {refresh}}).Code; got != 503 {
					t.Errorf("signing out: %d", got)
				}
				notes.Store(lasts)
				began := time.Now()
				stop()
				if took := time.Since(began); took > lastWait {
					t.Errorf("stopping took %v", took)
				}
				if _, err := newRig(t, r.p, func(o *Options) { o.Store = store }).good(access, filesURL); (err == nil) != lasts {
					t.Errorf("the access token after a restart: %v", err)
				}
				if strings.Contains(r.log.String(), "could not store the end of some logins") != lasts {
					t.Errorf("the log is %s", r.log)
				}
			})
		})
	}
}

// full returns a store that records no endings, or removes nothing.
func full() (store *hooked, notes, removes *atomic.Bool) {
	notes, removes = &atomic.Bool{}, &atomic.Bool{} // what fails
	return &hooked{Memory: NewMemory(), on: func(call, _ string, value []byte) error {
		if call == "End" && notes.Load() || call == "Swap" && value == nil && removes.Load() {
			return errAway
		}
		return nil
	}}, notes, removes
}

// One site, or one client address, takes at most two slots for client documents.
func TestFetches(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		from := netip.MustParseAddr("192.0.2.1")
		r.o.Bridge.(*testBridge).from = func(*http.Request) netip.Addr { return from }
		release := make(chan struct{})
		wait := func(w http.ResponseWriter, _ *http.Request) {
			<-release
			w.WriteHeader(500)
		}
		for _, host := range []string{"slow.example.com", "a.example.com", "b.example.com", "c.example.com"} {
			r.docs.Put(host, http.HandlerFunc(wait))
		}
		good := "https://app.example.com/client.json"
		r.docs.Put("app.example.com", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			oauthtest.JSON(w, 200, map[string]any{"client_id": good, "redirect_uris": []string{back}})
		}))
		var wg sync.WaitGroup
		fetch := func(id string) string {
			got := make(chan string, 1)
			wg.Go(func() {
				a := r.do("GET", "/authorize?"+ask(id).Encode(), nil)
				got <- fmt.Sprint(a.Code, a.Body)
			})
			synctest.Wait()
			select {
			case text := <-got:
				return text
			default:
				return "under way"
			}
		}
		for i, host := range []string{"slow", "slow"} {
			from = netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 10+i))
			if got := fetch(fmt.Sprintf("https://%s.example.com/%d", host, i)); got != "under way" {
				t.Fatal(got)
			}
		}
		from = netip.MustParseAddr("192.0.2.20")
		if got := fetch("https://slow.example.com/3"); !strings.Contains(got, "too many") {
			t.Errorf("a third of one site: %s", got)
		}
		for _, host := range []string{"a", "b"} {
			if got := fetch("https://" + host + ".example.com/1"); got != "under way" {
				t.Fatal(got)
			}
		}
		if got := fetch("https://c.example.com/1"); !strings.Contains(got, "too many") {
			t.Errorf("a third for one address: %s", got)
		}
		from = netip.MustParseAddr("192.0.2.30")
		if got := fetch(good); !strings.HasPrefix(got, "200") {
			t.Errorf("another address: %s", got)
		}
		close(release)
		wg.Wait()
		if got := fetch("https://c.example.com/2"); strings.Contains(got, "too many") {
			t.Errorf("when they have ended: %s", got)
		}
	})
}

// A client can end its login with any of its tokens (RFC 7009); nobody else can.
func TestRevoke(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		id, other := r.join(back), r.join(back)
		b := r.browser()
		revoke := func(client, text string, want int) {
			t.Helper()
			a := r.do("POST", "/oauth/revoke", url.Values{"client_id": {client}, "token": {text}})
			if a.Code != want || a.Header().Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("%d %v %s, want %d", a.Code, a.Header(), a.Body, want)
			}
		}
		ended := func(access, refresh string, want bool) {
			t.Helper()
			if _, err := r.good(access, filesURL); (err != nil) != want {
				t.Errorf("the access token: %v", err)
			}
			if refresh != "" {
				if _, _, fault := r.tokens(again(id, refresh)); (fault == "invalid_grant") != want {
					t.Errorf("the refresh token: %q", fault)
				}
			}
		}
		for name, alone := range map[string]bool{"with a refresh token": false, "without one": true} {
			r.p.noToken = alone
			for _, by := range []string{"access", "refresh"} {
				if alone && by == "refresh" {
					continue
				}
				access, refresh := r.granted(form(id, b.signIn(ask(id)).Get("code")))
				text := access
				if by == "refresh" {
					text = refresh
				}
				revoke(other, text, 400)
				revoke(id, text+"x", 200)
				revoke(id, strings.Replace(access, ".", ".A", 1), 200)
				revoke("nobody", text, 401)
				revoke(id, "", 400)
				r.counts(name+": what is refused has ended it", access, true)
				revoke(id, text, 200)
				ended(access, refresh, true)
				revoke(id, text, 200)
			}
		}
		if a := r.do("GET", "/oauth/revoke", nil); a.Code != 405 {
			t.Errorf("GET: %d", a.Code)
		}
		if a := r.do("GET", "/.well-known/oauth-authorization-server", nil); !strings.Contains(a.Body.String(), root+"/oauth/revoke") {
			t.Errorf("the metadata does not name it: %s", a.Body)
		}
	})
}

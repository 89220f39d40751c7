package front

import (
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

// counting counts its requests.
type counting struct {
	*Memory
	n atomic.Int64
}

func (c *counting) Get(ctx context.Context, key string) ([]byte, error) {
	c.n.Add(1)
	return c.Memory.Get(ctx, key)
}

func (c *counting) Swap(ctx context.Context, key string, old, value []byte, life time.Duration) (bool, error) {
	c.n.Add(1)
	return c.Memory.Swap(ctx, key, old, value, life)
}

// flaky fails once: at the request with a number, before or after it is executed.
type flaky struct {
	*Memory
	mu      sync.Mutex
	n, at   int
	done    bool
	failure error
}

func (f *flaky) now() (fails bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	return f.n == f.at
}

func (f *flaky) Get(ctx context.Context, key string) ([]byte, error) {
	if f.now() {
		return nil, f.failure
	}
	return f.Memory.Get(ctx, key)
}

func (f *flaky) Swap(ctx context.Context, key string, old, value []byte, life time.Duration) (bool, error) {
	if !f.now() {
		return f.Memory.Swap(ctx, key, old, value, life)
	}
	if f.done {
		if _, err := f.Memory.Swap(ctx, key, old, value, life); err != nil {
			return false, err
		}
	}
	return false, f.failure
}

func (f *flaky) End(ctx context.Context, id string, life time.Duration) error {
	if !f.now() {
		return f.Memory.End(ctx, id, life)
	}
	return f.failure
}

// A lost answer of the store ends no sign-in and no login: at worst the client must try again.
func TestLostAnswers(t *testing.T) {
	for _, done := range []bool{false, true} {
		for at := 1; ; at++ {
			reached := false
			t.Run(fmt.Sprintf("done %t, request %d", done, at), func(t *testing.T) {
				store := &flaky{Memory: NewMemory(), done: done, failure: errors.New("no route")}
				fronted(t, func(o *Options) { o.Store = store }, func(t *testing.T, r *rig) {
					id, b := r.join(back), r.browser()
					count := func() int {
						store.mu.Lock()
						defer store.mu.Unlock()
						return store.n
					}
					store.at = at
					code := b.signIn(ask(id)).Get("code")
					if code == "" {
						if count() != at {
							t.Fatal("no sign-in")
						}
						reached = true
						return // the client gets an error, and its user signs in again
					}
					persist := func(f url.Values) (access, refresh string) {
						for n := range 2 {
							a, next, fault := r.tokens(f)
							if fault == "" {
								return a, next
							}
							if fault != "temporarily_unavailable" || n > 0 {
								t.Fatalf("%s: %s", f.Get("grant_type"), fault)
							}
							time.Sleep(5 * time.Second)
						}
						return "", ""
					}
					_, first := persist(form(id, code))
					_, second := persist(again(id, first))
					_, last := persist(again(id, second))
					if reached = count() >= at; !reached {
						return
					}
					store.at = 0
					time.Sleep(grace + time.Second)
					if access, _, fault := r.tokens(again(id, last)); fault != "" {
						t.Errorf("the login has ended: %s", fault)
					} else if _, err := r.good(access, filesURL); err != nil {
						t.Errorf("the token: %v", err)
					}
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
		_, first, fault := r.tokens(form(id, code))
		if fault != "" {
			t.Fatalf("a code: %s", fault)
		}
		_, second, _ := r.tokens(again(id, first))
		time.Sleep(2 * grace)
		if _, _, fault := r.tokens(again(id, first)); fault != "" {
			t.Errorf("a former refresh token: %s", fault)
		}
		end("code")
		if _, _, fault := r.tokens(form(id, late)); fault != "invalid_grant" {
			t.Errorf("a code that has ended: %s", fault)
		}
		end("turn")
		if _, _, fault := r.tokens(again(id, first)); fault != "invalid_grant" {
			t.Errorf("when the moment is over: %s", fault)
		}
		if _, _, fault := r.tokens(again(id, second)); fault != "invalid_grant" {
			t.Errorf("the login goes on: %s", fault)
		}
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
			r.p.mu.Lock()
			defer r.p.mu.Unlock()
			scope, noID = to, without
		}
		scopes := func(access string) string {
			t.Helper()
			tok, err := r.good(access, filesURL)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(tok.Scopes, " ")
		}
		_, refresh, fault := r.tokens(form(id, b.signIn(ask(id, "scope", "mcp:use files:write")).Get("code")))
		if fault != "" {
			t.Fatal(fault)
		}
		set("openid api://mcp/mcp:use", false)
		f := again(id, refresh)
		f.Set("scope", "mcp:use files:write") // it still asks for both
		access, refresh, fault := r.tokens(f)
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
			if _, refresh, fault = r.tokens(again(id, refresh)); fault != "" {
				t.Fatalf("within a day: %s", fault)
			}
		}
		set("api://mcp/mcp:use", false)
		if _, refresh, fault = r.tokens(again(id, refresh)); fault != "" {
			t.Fatalf("with an ID token: %s", fault)
		}
		set("api://mcp/mcp:use", true)
		time.Sleep(23 * time.Hour)
		if _, refresh, fault = r.tokens(again(id, refresh)); fault != "" {
			t.Fatalf("within a day of that: %s", fault)
		}
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

// A login that ends at one instance ends at the others within two seconds, also without a refresh token and for
// instances that start later. If the store cannot be read, it ends once that works.
func TestEndedElsewhere(t *testing.T) {
	for _, alone := range []bool{false, true} {
		store := &silent{Memory: NewMemory()}
		fronted(t, func(o *Options) { o.Store = store }, func(t *testing.T, r *rig) {
			r.p.noToken = alone
			other := newRig(t, r.p, func(o *Options) { o.Store = store })
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				other.Watch(ctx)
			}()
			defer func() {
				cancel()
				<-done
			}()
			id, b := r.join(back), r.browser()
			login := func() string {
				access, _, fault := r.tokens(form(id, b.signIn(ask(id)).Get("code")))
				if fault != "" {
					t.Fatal(fault)
				}
				if _, err := other.good(access, filesURL); err != nil {
					t.Fatal(err)
				}
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
			if _, err := other.good(first, filesURL); err == nil {
				t.Error("the token of a login that has ended counts elsewhere")
			}
			store.silent.Store(true)
			end(second)
			time.Sleep(10 * lookEvery)
			synctest.Wait()
			if _, err := other.good(second, filesURL); err != nil {
				t.Errorf("nobody could know that it has ended: %v", err)
			}
			if n := strings.Count(other.log.String(), "cannot read the ended logins from its store"); n != 1 {
				t.Errorf("it is said %d times: %s", n, other.log)
			}
			store.silent.Store(false)
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

// silent does not return the ended logins.
type silent struct {
	*Memory
	silent atomic.Bool
}

func (s *silent) Ended(ctx context.Context, mark string) ([]string, string, error) {
	if s.silent.Load() {
		return nil, "", errors.New("no route")
	}
	return s.Memory.Ended(ctx, mark)
}

// A login ends even if the store does not record that, because it is full, or does not remove it: the rest is done
// when the store works again.
func TestEndedLater(t *testing.T) {
	store := &full{Memory: NewMemory()}
	fronted(t, func(o *Options) { o.Store = store }, func(t *testing.T, r *rig) {
		other := newRig(t, r.p, func(o *Options) { o.Store = store })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, at := range []*rig{r, other} {
			wg.Go(func() { at.Watch(ctx) })
		}
		defer func() {
			cancel()
			wg.Wait()
		}()
		id, b := r.join(back), r.browser()
		signOut := func(text string) int {
			return r.do("POST", "/oauth/revoke", url.Values{"client_id": {id}, "token": {text}}).Code
		}
		for name, tc := range map[string]struct {
			fails       *atomic.Bool
			theft, goes bool // the login ends at once
		}{"no note": {&store.notes, false, true}, "no note of a theft": {&store.notes, true, true}, "not removed": {&store.removes, false, false}} {
			access, refresh, fault := r.tokens(form(id, b.signIn(ask(id)).Get("code")))
			if fault != "" {
				t.Fatal(fault)
			}
			if _, err := other.good(access, filesURL); err != nil {
				t.Fatal(err)
			}
			last := refresh
			if tc.theft {
				if _, last, fault = r.tokens(again(id, refresh)); fault != "" {
					t.Fatal(fault)
				}
				time.Sleep(grace + time.Second)
			}
			tc.fails.Store(true)
			if tc.theft {
				if _, _, fault := r.tokens(again(id, refresh)); fault != "temporarily_unavailable" {
					t.Errorf("%s: %q", name, fault)
				}
			} else if got := signOut(last); got != 503 {
				t.Errorf("%s: %d", name, got)
			}
			if _, err := r.good(access, filesURL); err == nil {
				t.Errorf("%s: the access token counts here", name)
			}
			if tc.goes {
				if _, _, fault := r.tokens(again(id, last)); fault != "invalid_grant" {
					t.Errorf("%s: the refresh token: %q", name, fault)
				}
				time.Sleep(2 * lookEvery)
				if got := signOut(last); got != 503 {
					t.Errorf("%s: %d, and others do not know of it", name, got)
				}
			}
			tc.fails.Store(false)
			time.Sleep(3 * lookEvery)
			synctest.Wait()
			if _, err := other.good(access, filesURL); err == nil {
				t.Errorf("%s: the access token counts elsewhere", name)
			}
			if _, _, fault := other.tokens(again(id, last)); fault != "invalid_grant" {
				t.Errorf("%s: the refresh token later: %q", name, fault)
			}
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
			store := &full{Memory: NewMemory()}
			fronted(t, func(o *Options) { o.Store = store }, func(t *testing.T, r *rig) {
				ctx, cancel := context.WithCancel(t.Context())
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					r.Watch(ctx)
				}()
				id := r.join(back)
				access, refresh, fault := r.tokens(form(id, r.browser().signIn(ask(id)).Get("code")))
				if fault != "" {
					t.Fatal(fault)
				}
				store.notes.Store(true)
				if got := r.do("POST", "/oauth/revoke", url.Values{"client_id": {id}, "token": {refresh}}).Code; got != 503 {
					t.Errorf("signing out: %d", got)
				}
				store.notes.Store(lasts)
				began := time.Now()
				cancel()
				<-stopped
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

// full is a store that records no endings, or removes nothing.
type full struct {
	*Memory
	notes, removes atomic.Bool // what fails
}

func (f *full) End(ctx context.Context, id string, life time.Duration) error {
	if f.notes.Load() {
		return errors.New("out of memory")
	}
	return f.Memory.End(ctx, id, life)
}

func (f *full) Swap(ctx context.Context, key string, old, value []byte, life time.Duration) (bool, error) {
	if value == nil && f.removes.Load() {
		return false, errors.New("no route")
	}
	return f.Memory.Swap(ctx, key, old, value, life)
}

// One site, or one client address, takes at most two slots for client documents.
func TestFetches(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		from := netip.MustParseAddr("192.0.2.1")
		var mu sync.Mutex
		r.o.Bridge.(*testBridge).from = func(*http.Request) netip.Addr {
			mu.Lock()
			defer mu.Unlock()
			return from
		}
		move := func(to string) {
			mu.Lock()
			defer mu.Unlock()
			from = netip.MustParseAddr(to)
		}
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
		fetch := func(id string) (text func() string) {
			var got string
			done := make(chan struct{})
			wg.Go(func() {
				defer close(done)
				a := r.do("GET", "/authorize?"+ask(id).Encode(), nil)
				got = fmt.Sprint(a.Code, a.Body)
			})
			synctest.Wait()
			return func() string {
				select {
				case <-done:
					return got
				default:
					return "under way"
				}
			}
		}
		for i, host := range []string{"slow", "slow"} {
			move(fmt.Sprintf("192.0.2.%d", 10+i))
			if got := fetch(fmt.Sprintf("https://%s.example.com/%d", host, i))(); got != "under way" {
				t.Fatal(got)
			}
		}
		move("192.0.2.20")
		if got := fetch("https://slow.example.com/3")(); !strings.Contains(got, "too many") {
			t.Errorf("a third of one site: %s", got)
		}
		for _, host := range []string{"a", "b"} {
			if got := fetch("https://" + host + ".example.com/1")(); got != "under way" {
				t.Fatal(got)
			}
		}
		if got := fetch("https://c.example.com/1")(); !strings.Contains(got, "too many") {
			t.Errorf("a third for one address: %s", got)
		}
		move("192.0.2.30")
		if got := fetch(good)(); !strings.HasPrefix(got, "200") {
			t.Errorf("another address: %s", got)
		}
		close(release)
		wg.Wait()
		if got := fetch("https://c.example.com/2")(); strings.Contains(got, "too many") {
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
				access, refresh, fault := r.tokens(form(id, b.signIn(ask(id)).Get("code")))
				if fault != "" {
					t.Fatalf("%s: %s", name, fault)
				}
				text := access
				if by == "refresh" {
					text = refresh
				}
				revoke(other, text, 400)
				revoke(id, text+"x", 200)
				revoke(id, strings.Replace(access, ".", ".A", 1), 200)
				revoke("nobody", text, 401)
				revoke(id, "", 400)
				if _, err := r.good(access, filesURL); err != nil {
					t.Fatalf("%s: what is refused has ended it: %v", name, err)
				}
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

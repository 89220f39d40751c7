package login_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/oauth/login"
)

// begun begins a sign-in in another process, and ends the process as soon as the person was asked. It returns the
// address that was shown.
func (r *rig) begun() (address string) {
	shown := make(chan string, 1)
	p := login.New(r.options(func(o *login.Options) { o.Ask = func(address string) { shown <- address } }))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.call(p)
	}()
	select {
	case address = <-shown:
	case <-done:
		r.t.Fatal("nobody was asked")
	}
	p.Close() // like the end of the process
	<-done
	return address
}

func (r *rig) attempt() (file string, has bool) {
	all, err := filepath.Glob(filepath.Join(r.dir, "*.attempt"))
	if err != nil {
		r.t.Fatal(err)
	}
	if len(all) == 0 {
		return "", false
	}
	return all[0], true
}

// I-254, N-69: a process ends while the person signs in. The next one listens at the same redirect address and
// finishes the sign-in without another window.
func TestAttempt(t *testing.T) {
	r := newRig(t)
	address := r.begun()
	file, has := r.attempt()
	if !has {
		t.Fatal("the attempt was not kept")
	}
	if info, err := os.Stat(file); err != nil || os.PathSeparator == '/' && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	asked := make(chan string, 2)
	p := r.person(func(o *login.Options) { o.Ask = func(address string) { asked <- address } })
	done := make(chan int)
	go func() {
		status, err := r.call(p)
		if err != nil {
			t.Error(err)
		}
		done <- status
	}()
	back := callbackOf(t, address)
	for listens := false; !listens; time.Sleep(10 * time.Millisecond) {
		res, err := http.Get(back)
		if listens = err == nil; listens {
			_ = res.Body.Close()
			continue
		}
		select {
		case status := <-done:
			t.Fatalf("nobody listens where the browser comes back to: call = %d", status)
		default:
		}
	}
	browse(t, address) // the window is still open
	if status := <-done; status != http.StatusOK || len(asked) != 0 || r.issuer.Asked("/register") != 1 {
		t.Errorf("call = %d, %d more windows, %d registrations", status, len(asked), r.issuer.Asked("/register"))
	}
	if _, has := r.attempt(); has {
		t.Error("the attempt is there after its end")
	}
}

// callbackOf returns the redirect address.
func callbackOf(t *testing.T, address string) string {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("redirect_uri")
}

// I-254, N-73: an attempt is not resumed if it is old, of another client, or from a clock that was set back. One
// that is no longer new is shown again.
func TestAttemptUseless(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(text string) string
		again  bool // the same attempt, in a new window
	}{
		"older":           {aged(t, 5*time.Minute), true},
		"too old":         {aged(t, 11*time.Minute), false},
		"clock set back":  {aged(t, -time.Hour), false},
		"other issuer":    {func(s string) string { return strings.Replace(s, `"name": "http`, `"name": "https`, 1) }, false},
		"other server":    {func(s string) string { return strings.Replace(s, `/mcp"`, `/other"`, 1) }, false},
		"not ours":        {func(s string) string { return strings.Replace(s, `"registered": true`, `"registered": false`, 1) }, false},
		"broken":          {func(s string) string { return s[:len(s)/2] }, false},
		"no state":        {func(s string) string { return strings.Replace(s, `"state": "`, `"other": "`, 1) }, false},
		"of another time": {func(s string) string { return strings.Replace(s, `"format": 1`, `"format": 7`, 1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			first := r.begun()
			file, _ := r.attempt()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			changed := tc.change(string(text))
			if changed == string(text) {
				t.Fatalf("nothing to change in %s", text)
			}
			if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			second := ""
			status, err := r.call(r.person(func(o *login.Options) {
				o.Ask = func(address string) {
					second = address
					go browse(t, address)
				}
			}))
			if status != http.StatusOK || err != nil || second == "" || (second == first) != tc.again {
				t.Errorf("call = %d, %v, the same address: %t, want %t", status, err, second == first, tc.again)
			}
		})
	}
}

// notKnown is the log line for the registration of another client.
const notKnown = "does not know the bridge any more"

// The authorization server has forgotten the bridge's client: its page tells only the person, and the browser never
// returns. Another client is registered before that page is shown, for a login and for a resumed attempt.
func TestForgotten(t *testing.T) {
	for name, begin := range map[string]func(r *rig){
		"a login": func(r *rig) {
			r.signsIn(r.person(nil))
		},
		"an attempt": func(r *rig) { r.begun() },
		"both": func(r *rig) {
			r.signsIn(r.person(nil))
			r.issuer.Revoke(true)
			r.begun()
		},
	} {
		for _, forgotten := range []bool{true, false} {
			r := newRig(t)
			begin(r)
			if forgotten {
				r.issuer.Forget()
			}
			shown := 0
			l, err := r.person(func(o *login.Options) {
				o.Ask = func(address string) {
					shown++
					go browse(t, address)
				}
			}).SignIn(t.Context())
			// If another program has taken the port meanwhile, another client is registered in any case.
			if err != nil || shown != 1 || forgotten && r.issuer.Asked("/register") != 2 || !forgotten && strings.Contains(r.log.String(), notKnown) {
				t.Fatalf("%s, forgotten %t: %v, %d windows, %d registrations\n%s", name, forgotten, err, shown, r.issuer.Asked("/register"), &r.log)
			}
			if g, ok := r.issuer.Good(l.Access); !ok || g.Client != l.Client.ID {
				t.Errorf("%s, forgotten %t: the token is for %+v", name, forgotten, g)
			}
			if _, has := r.attempt(); has {
				t.Errorf("%s, forgotten %t: the attempt is there after its end", name, forgotten)
			}
		}
	}
}

// An answer that is not about the client keeps the client. If no client can be registered, no request is sent.
func TestNotForgotten(t *testing.T) {
	for name, change := range map[string]func(r *rig){
		"too many requests": func(r *rig) { r.answerOnce(http.StatusTooManyRequests) },
		"a fault of its":    func(r *rig) { r.answerOnce(http.StatusBadGateway) },
		"no registration": func(r *rig) {
			r.issuer.Change = func(m map[string]any) { delete(m, "registration_endpoint") }
		},
	} {
		r := newRig(t)
		r.signsIn(r.person(nil))
		change(r)
		_, _ = r.person(nil).SignIn(t.Context())
		pages := r.issuer.Asked("/authorize") // including those of the browser
		if strings.Contains(r.log.String(), notKnown) || name == "no registration" && pages > 2 {
			t.Errorf("%s: %d pages\n%s", name, pages, &r.log)
		}
	}
}

// answerOnce makes the authorization page answer with a status, once.
func (r *rig) answerOnce(status int) {
	r.issuer.Answer("/authorize", func(w http.ResponseWriter, _ *http.Request) {
		r.issuer.Answer("/authorize", nil)
		w.WriteHeader(status)
	})
}

// logout removes an attempt, with a login and without.
func TestAbandon(t *testing.T) {
	for _, signed := range []bool{true, false} {
		r := newRig(t)
		s := login.Open(r.dir)
		if signed {
			r.signsIn(r.person(nil))
			r.issuer.Revoke(true)
		}
		r.begun()
		if _, has := r.attempt(); !has {
			t.Fatal("there is no attempt")
		}
		if n, err := s.Abandon("http://other.example.com/mcp"); n != 0 || err != nil {
			t.Errorf("of another server: %d, %v", n, err)
		}
		keys, err := s.Keys()
		if err != nil || len(keys) != map[bool]int{true: 1}[signed] {
			t.Fatalf("Keys = %v, %v", keys, err)
		}
		for _, key := range keys {
			if err := login.SignOut(t.Context(), s, key, http.DefaultTransport, nil); err != nil {
				t.Error(err)
			}
		}
		if n, err := s.Abandon(r.tools.URL); signed == (n == 1) || err != nil {
			t.Errorf("signed in %t: %d, %v", signed, n, err)
		}
		if file, has := r.attempt(); has {
			t.Errorf("signed in %t: %s is there yet", signed, file)
		}
	}
}

// aged returns a function that makes an attempt older.
func aged(t *testing.T, by time.Duration) func(string) string {
	return func(text string) string {
		before, rest, ok := strings.Cut(text, `"began": "`)
		was, after, more := strings.Cut(rest, `"`)
		at, err := time.Parse(time.RFC3339Nano, was)
		if !ok || !more || err != nil {
			t.Fatal(text, err)
		}
		return before + `"began": "` + at.Add(-by).Format(time.RFC3339Nano) + `"` + after
	}
}

// I-222: the person may type the address at which a browser on another machine has ended. Other lines are ignored.
func TestTyped(t *testing.T) {
	r := newRig(t)
	lines := make(chan string)
	p := r.person(func(o *login.Options) {
		o.Typed = lines
		o.Ask = func(address string) {
			elsewhere := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			res, err := elsewhere.Get(address)
			if err != nil {
				t.Error(err)
				return
			}
			_ = res.Body.Close()
			end := res.Header.Get("Location")
			go func() {
				for _, line := range []string{"", "what now?", strings.Replace(end, "state=", "state=x", 1), strings.Replace(end, "127.0.0.1", "evil.example.com", 1), strings.Replace(end, "/callback", "/other", 1), "  " + end + "\r"} {
					lines <- line
				}
				close(lines)
			}()
		}
	})
	if l, err := p.SignIn(t.Context()); err != nil || l.Access == "" {
		t.Errorf("%+v, %v", l, err)
	}
	// The issuer is checked first: an answer of another authorization server ends the sign-in.
	one := make(chan string, 1)
	p = r.person(func(o *login.Options) {
		o.Typed = one
		o.Ask = func(address string) {
			u, _ := url.Parse(address)
			one <- callbackOf(t, address) + "?code=c&iss=https%3A%2F%2Fevil.example.com&state=" + u.Query().Get("state")
		}
	})
	if _, err := p.SignIn(t.Context()); err == nil || !strings.Contains(err.Error(), "another authorization server") {
		t.Errorf("an answer of another: %v", err)
	}
}

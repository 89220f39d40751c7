package login

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// callback receives the browser that returns to this machine (RFC 8252 §7.3). It listens only during one sign-in.
type callback struct {
	redirect string // its address
	path     string
	listener net.Listener

	mu      sync.Mutex // guards the rest
	state   string     // state of the waiting sign-in; empty if no sign-in waits
	issuer  *discovery.Issuer
	answers chan answer
}

// answer is the authorization server's answer, which the browser brings.
type answer struct {
	code string
	err  error
}

// listen opens a callback at an address such as http://127.0.0.1:7777/callback. Port 0 means any free port.
func listen(ctx context.Context, redirect string) (*callback, error) {
	u, err := url.Parse(redirect)
	if err != nil {
		return nil, err
	}
	host := u.Hostname()
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("the browser cannot return to %s: %w", redirect, err)
	}
	if port == "0" {
		_, port, _ = net.SplitHostPort(l.Addr().String())
		u.Host = net.JoinHostPort(u.Hostname(), port)
	}
	return &callback{
		redirect: u.String(),
		path:     u.Path,
		listener: l,
		answers:  make(chan answer, 1),
	}, nil
}

// await serves the callback until the answer arrives. The person may also type a line with the answer.
func (c *callback) await(ctx context.Context, state string, issuer *discovery.Issuer, typed <-chan string) (code string, err error) {
	c.mu.Lock()
	c.state, c.issuer = state, issuer
	c.mu.Unlock()
	s := &http.Server{
		Handler:        c,
		ReadTimeout:    10 * time.Second,
		WriteTimeout:   10 * time.Second,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(c.listener) })
	defer func() {
		// The browser gets a second for the page, which is small and is being sent.
		end, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.Shutdown(end) != nil {
			_ = s.Close()
		}
		wg.Wait()
	}()
	for {
		select {
		case a := <-c.answers:
			return a.code, a.err
		case line, more := <-typed:
			if u, err := url.Parse(strings.TrimSpace(line)); err == nil && u.Path == c.path && loopbackHost(u.Host) {
				c.accept(u.Query())
			}
			if !more {
				typed = nil
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

const (
	pageDone    = "The browser's part of the sign-in is done. Close this window and go back."
	pageEnded   = "This sign-in has ended. Go back and begin again."
	pageRefused = "The sign-in was refused."
)

// ServeHTTP accepts the answer and ignores all other requests. The page shows no part of the request (I-213, I-216).
func (c *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Connection", "close")
	if r.Method != http.MethodGet || r.URL.Path != c.path || !loopbackHost(r.Host) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	page, status := c.accept(r.URL.Query())
	w.WriteHeader(status)
	_, _ = io.WriteString(w, page)
}

// accept accepts the answer for the waiting sign-in (I-213, I-222). It returns the text for the browser.
func (c *callback) accept(q url.Values) (page string, status int) {
	c.mu.Lock()
	expected, issuer := c.state, c.issuer
	expectedState := expected != "" && len(q["state"]) == 1 && subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(expected)) == 1
	if expectedState {
		c.state = "" // a state works only once
	}
	c.mu.Unlock()
	if !expectedState {
		return pageEnded, http.StatusNotFound
	}
	a, page := readAnswer(q, issuer)
	c.answers <- a
	if a.err != nil {
		return page, http.StatusBadRequest
	}
	return page, http.StatusOK
}

// readAnswer reads an answer with the right state. It checks the answer's issuer first.
func readAnswer(q url.Values, issuer *discovery.Issuer) (answer, string) {
	if err := issuer.Answered(q.Get("iss"), q.Has("iss")); err != nil || len(q["iss"]) > 1 {
		if err == nil {
			err = errors.New("the answer has more than one iss: it is refused")
		}
		return answer{err: err}, pageEnded
	}
	if q.Has("error") {
		code := q.Get("error")
		if len(code) > 60 || !httpguts.ValidHeaderFieldName(code) {
			code = "an error"
		}
		return answer{err: &refusedError{code}}, pageRefused
	}
	if len(q["code"]) != 1 || q.Get("code") == "" {
		return answer{err: errors.New("the answer of the authorization server must have one code")}, pageEnded
	}
	return answer{code: q.Get("code")}, pageDone
}

// refusedError is an error that the authorization server sent. The server or the person has refused.
type refusedError struct{ code string }

func (r *refusedError) Error() string { return "the authorization server says " + r.code }

// loopbackHost reports whether a Host header names this machine. Otherwise, a site could reach the callback under the
// site's own name.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && a.IsLoopback()
}

package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// hook is where whoever knows the secret says that a server's tools have
// changed: POST /hooks/NAME. The secret is shown as a bearer token, or by a
// signature of the body.
type hook struct {
	secret string
	// renew looks again, or takes the body for the catalogue of the tools.
	renew func(ctx context.Context, body []byte) (tools int, err error)
	// signing has a place for each large body that is read before its signature can
	// be checked. Those who know no secret get no more than these.
	signing chan struct{}
}

func newHook(secret string, renew func(context.Context, []byte) (int, error)) *hook {
	return &hook{secret, renew, make(chan struct{}, signedBodies)}
}

const (
	// hookLimit bounds how long a sender waits for its answer.
	hookLimit = time.Minute
	// signedBodies is how many large bodies with a signature are read at once.
	signedBodies = 2
	// smallBody is the size up to which a body needs no place: with no key and no
	// secret, the header of a request may be as large.
	smallBody = 16 << 10
	// signedWait is how long a request waits for a place, and signedRead how long
	// its sender may take for the body.
	signedWait = 5 * time.Second
	signedRead = 10 * time.Second
	// signature is the header with the HMAC-SHA256 of the body.
	signature = "X-Hub-Signature-256"
)

// hooked returns the webhook of the server of that name; nil when it has none.
func (s *Server) hooked(name string) *hook {
	if r := s.now.Load().reached[name]; r != nil {
		return r.hook
	}
	return nil
}

// hooks returns the webhooks of all servers that have one.
func (s *Server) hooks() map[string]*hook {
	all := map[string]*hook{}
	for name, r := range s.now.Load().reached {
		if r.hook != nil {
			all[name] = r.hook
		}
	}
	return all
}

// hook answers senders. Nothing of the body is looked at before the sender has
// shown that it knows the secret.
func (s *Server) hook(w http.ResponseWriter, r *http.Request, name string, h *hook) {
	signed := r.Header.Get(signature)
	if signed == "" && !h.knows(r.Header.Get("Authorization")) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		object(w, http.StatusUnauthorized, "error", "show the secret, as Authorization: Bearer SECRET or by "+signature)
		return
	}
	body, fault := s.hookBody(w, r, h, signed)
	if fault != nil {
		text, _ := json.Marshal(map[string]string{"error": fault.Text})
		fault.Answer(w, "application/json", text)
		return
	}
	defer body.Free()
	if signed != "" {
		if !h.signed(signed, body.Bytes()) {
			object(w, http.StatusUnauthorized, "error", "the signature is not that of the body")
			return
		}
		n := len(body.Bytes())
		if !s.b.Room("").Reserve(n) { // from here on it is under way like all others
			httpio.RetryAfter(w.Header(), 5*time.Second)
			object(w, http.StatusServiceUnavailable, "error", "too many bytes are under way in the bridge; try again later")
			return
		}
		defer s.b.Room("").Return(n)
	}
	ctx, cancel := context.WithTimeout(r.Context(), hookLimit)
	defer cancel()
	renew := h.renew
	if s.instance != nil {
		renew = func(ctx context.Context, body []byte) (int, error) { return s.instance.hooks.tell(ctx, name, h, body) }
	}
	tools, err := renew(ctx, body.Bytes())
	if err == nil {
		object(w, http.StatusOK, "tools", tools)
		return
	}
	status, why := http.StatusBadGateway, "the tools stay as they were: the document or the catalogue cannot be used; the bridge's log says why"
	if bad, ok := errors.AsType[*rest.CatalogError](err); ok {
		status, why = http.StatusUnprocessableEntity, bad.Error()
	} else if errors.Is(err, rest.ErrElsewhere) {
		status, why = http.StatusConflict, err.Error()
	} else if errors.Is(err, errUntold) {
		httpio.RetryAfter(w.Header(), 2*time.Second)
		status, why = http.StatusServiceUnavailable, errUntold.Error()+"; send it again later"
	}
	s.log.Warn("a webhook has changed nothing", "server", name, "err", err)
	object(w, status, "error", why)
}

// hookBody reads the body of a request. Where it takes the body to tell whether the
// sender knows the secret, there is little room and time for that.
func (s *Server) hookBody(w http.ResponseWriter, r *http.Request, h *hook, signed string) (*httpio.Body, *httpio.Fault) {
	if signed == "" {
		return httpio.ReadBody(s.b, w, r, rest.MaxCatalog)
	}
	if r.ContentLength < 0 || r.ContentLength > smallBody {
		wait := time.NewTimer(signedWait)
		defer wait.Stop()
		select {
		case h.signing <- struct{}{}:
			defer func() { <-h.signing }()
		case <-wait.C:
			return nil, httpio.BusyFault(r, "too many bodies are being read whose signatures are to be checked; try again later")
		case <-r.Context().Done():
			return nil, httpio.BusyFault(r, "the sender has gone")
		}
	}
	return httpio.ReadUncountedBody(w, r, rest.MaxCatalog, signedRead)
}

// object answers with a JSON object that has one member.
func object(w http.ResponseWriter, status int, key string, value any) {
	body, _ := json.Marshal(map[string]any{key: value}) // nothing in it can fail
	answer.Data(w, status, "application/json; charset=utf-8", body)
}

// knows reports whether an Authorization header shows the secret. How long that
// takes says nothing of it.
func (h *hook) knows(authorization string) bool {
	scheme, token, _ := strings.Cut(authorization, " ")
	given, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(h.secret))
	return hmac.Equal(given[:], want[:]) && strings.EqualFold(scheme, "Bearer")
}

// signed reports whether a signature, sha256= and hexadecimal digits, is that of
// the body.
func (h *hook) signed(by string, body []byte) bool {
	digits, ok := strings.CutPrefix(by, "sha256=")
	given, err := hex.DecodeString(digits)
	mac := hmac.New(sha256.New, []byte(h.secret))
	mac.Write(body)
	return ok && err == nil && hmac.Equal(given, mac.Sum(nil))
}

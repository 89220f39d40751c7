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

// hook is the webhook POST /hooks/NAME of a server: senders announce that its tools changed. They prove
// the secret by a bearer token, or by a signature of the body.
type hook struct {
	secret string
	// renew reads the catalogue of the tools from body, or fetches it if body is empty.
	renew func(ctx context.Context, body []byte) (tools int, err error)
	// signing bounds the large bodies that are read before their signature is checked. Senders
	// without the secret get no more memory than that.
	signing chan struct{}
}

func newHook(secret string, renew func(context.Context, []byte) (int, error)) *hook {
	return &hook{secret, renew, make(chan struct{}, signedBodies)}
}

const (
	// hookLimit bounds one renewal of a catalogue, and so the time that a sender waits for its answer.
	hookLimit = time.Minute
	// signedBodies is the number of slots for bodies that may be above smallBody: as many are read at once.
	signedBodies = 2
	// smallBody is the size of the largest body that needs no slot of signing. The headers, which
	// need no secret either, may be as large.
	smallBody = 16 << 10
	// signedWait limits the wait of a request for a slot, and signedRead the reading of its body.
	signedWait = 5 * time.Second
	signedRead = 10 * time.Second
	// signature is the header with the HMAC-SHA256 of the body.
	signature = "X-Hub-Signature-256"
)

// hookOf returns the webhook of a server; nil if it has none.
func (s *server) hookOf(name string) *hook {
	if b := s.table.Load().backends[name]; b != nil {
		return b.hook
	}
	return nil
}

func (s *server) hooks() map[string]*hook {
	all := map[string]*hook{}
	for name, b := range s.table.Load().backends {
		if b.hook != nil {
			all[name] = b.hook
		}
	}
	return all
}

// hook answers a request to a webhook. hook parses the body only after the sender has proved that it has the secret.
func (s *server) hook(w http.ResponseWriter, r *http.Request, name string, h *hook) {
	signed := r.Header.Get(signature)
	if signed == "" && !h.hasSecret(r.Header.Get("Authorization")) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		answerObject(w, http.StatusUnauthorized, "error", "the secret is missing: send Authorization: Bearer SECRET or "+signature)
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
		if !h.validSignature(signed, body.Bytes()) {
			answerObject(w, http.StatusUnauthorized, "error", "the signature does not match the body")
			return
		}
		n := len(body.Bytes())
		if !s.g.Room("").Reserve(n) { // from here on, the body counts like any message in flight
			httpio.RetryAfter(w.Header(), 5*time.Second)
			answerObject(w, http.StatusServiceUnavailable, "error", "too many bytes are in flight in the bridge; try again later")
			return
		}
		defer s.g.Room("").Return(n)
	}
	ctx, cancel := context.WithTimeout(r.Context(), hookLimit)
	defer cancel()
	renew := h.renew
	if s.instance != nil {
		renew = func(ctx context.Context, body []byte) (int, error) { return s.instance.hooks.apply(ctx, name, h, body) }
	}
	tools, err := renew(ctx, body.Bytes())
	if err == nil {
		answerObject(w, http.StatusOK, "tools", tools)
		return
	}
	status, why := http.StatusBadGateway, "the tools stay as they were: the document or the catalogue cannot be used; the bridge's log has the reason"
	if bad, ok := errors.AsType[*rest.CatalogError](err); ok {
		status, why = http.StatusUnprocessableEntity, bad.Error()
	} else if errors.Is(err, rest.ErrElsewhere) {
		status, why = http.StatusConflict, err.Error()
	} else if errors.Is(err, errNotShared) {
		httpio.RetryAfter(w.Header(), 2*time.Second)
		status, why = http.StatusServiceUnavailable, errNotShared.Error()+"; send it again later"
	}
	s.log.Warn("webhook not applied", "server", name, "err", err)
	answerObject(w, status, "error", why)
}

// hookBody reads the body of a request. If the body is needed to authenticate the sender, memory and
// time are limited.
func (s *server) hookBody(w http.ResponseWriter, r *http.Request, h *hook, signed string) (*httpio.Body, *httpio.Fault) {
	if signed == "" {
		return httpio.ReadBody(s.g, w, r, rest.MaxCatalog)
	}
	if r.ContentLength < 0 || r.ContentLength > smallBody {
		wait := time.NewTimer(signedWait)
		defer wait.Stop()
		select {
		case h.signing <- struct{}{}:
			defer func() { <-h.signing }()
		case <-wait.C:
			return nil, httpio.BusyFault(r, "too many signed bodies are being read; try again later")
		case <-r.Context().Done():
			return nil, httpio.BusyFault(r, "the sender left")
		}
	}
	return httpio.ReadUncountedBody(w, r, rest.MaxCatalog, signedRead)
}

// answerObject answers a request with a JSON object of one member.
func answerObject(w http.ResponseWriter, status int, key string, value any) {
	body, _ := json.Marshal(map[string]any{key: value}) // every value has a JSON form
	answer.Data(w, status, "application/json; charset=utf-8", body)
}

// hasSecret reports whether an Authorization header has the secret, in constant time.
func (h *hook) hasSecret(authorization string) bool {
	scheme, token, _ := strings.Cut(authorization, " ")
	given, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(h.secret))
	return hmac.Equal(given[:], want[:]) && strings.EqualFold(scheme, "Bearer")
}

// validSignature reports whether a signature, sha256= and hexadecimal digits, matches the body.
func (h *hook) validSignature(by string, body []byte) bool {
	digits, ok := strings.CutPrefix(by, "sha256=")
	given, err := hex.DecodeString(digits)
	mac := hmac.New(sha256.New, []byte(h.secret))
	mac.Write(body)
	return ok && err == nil && hmac.Equal(given, mac.Sum(nil))
}

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

	"github.com/gin-gonic/gin"

	"github.com/mcp-bridge/bridge/adapters/httpbody"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/rest/catalog"
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

// hook answers senders. Nothing of the body is looked at before the sender has
// shown that it knows the secret.
func (s *Server) hook(name string, h *hook) gin.HandlerFunc {
	return func(c *gin.Context) {
		r := c.Request
		signed := r.Header.Get(signature)
		if signed == "" && !h.knows(r.Header.Get("Authorization")) {
			c.Header("WWW-Authenticate", "Bearer")
			c.JSON(http.StatusUnauthorized, gin.H{"error": "show the secret, as Authorization: Bearer SECRET or by " + signature})
			return
		}
		body, fault := s.hookBody(c, h, signed)
		if fault != nil {
			text, _ := json.Marshal(gin.H{"error": fault.Text})
			fault.Answer(c.Writer, gin.MIMEJSON, text)
			return
		}
		defer body.Free()
		if signed != "" {
			if !h.signed(signed, body.Bytes()) {
				c.JSON(http.StatusUnauthorized, gin.H{"error": "the signature is not that of the body"})
				return
			}
			n := len(body.Bytes())
			if !s.b.Room("").Reserve(n) { // from here on it is under way like all others
				c.Header("Retry-After", "5")
				c.JSON(http.StatusServiceUnavailable, gin.H{"error": "too many bytes are under way in the bridge; try again later"})
				return
			}
			defer s.b.Room("").Return(n)
		}
		ctx, cancel := context.WithTimeout(r.Context(), hookLimit)
		defer cancel()
		tools, err := h.renew(ctx, body.Bytes())
		if err == nil {
			c.JSON(http.StatusOK, gin.H{"tools": tools})
			return
		}
		status, why := http.StatusBadGateway, "the tools stay as they were: what describes them cannot be used; the bridge's log says why"
		if bad, ok := errors.AsType[*rest.CatalogError](err); ok {
			status, why = http.StatusUnprocessableEntity, bad.Error()
		} else if errors.Is(err, rest.ErrElsewhere) {
			status, why = http.StatusConflict, err.Error()
		}
		s.log.Warn("a webhook has changed nothing", "server", name, "err", err)
		c.JSON(status, gin.H{"error": why})
	}
}

// hookBody reads the body of a request. Where it takes the body to tell whether the
// sender knows the secret, there is little room and time for that.
func (s *Server) hookBody(c *gin.Context, h *hook, signed string) (*httpbody.Body, *httpbody.Fault) {
	r := c.Request
	if signed == "" {
		return httpbody.Read(s.b, c.Writer, r, catalog.MaxBytes)
	}
	if r.ContentLength < 0 || r.ContentLength > smallBody {
		wait := time.NewTimer(signedWait)
		defer wait.Stop()
		select {
		case h.signing <- struct{}{}:
			defer func() { <-h.signing }()
		case <-wait.C:
			return nil, httpbody.Busy(r, "too many bodies are being read whose signatures are to be checked; try again later")
		case <-r.Context().Done():
			return nil, httpbody.Busy(r, "the sender has gone")
		}
	}
	return httpbody.ReadUncounted(c.Writer, r, catalog.MaxBytes, signedRead)
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

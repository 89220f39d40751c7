package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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
}

const (
	// hookLimit bounds how long a sender waits for its answer.
	hookLimit = time.Minute
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
		body, fault := httpbody.Read(s.b, c.Writer, r, catalog.MaxBytes)
		if fault != nil {
			c.JSON(fault.Status, gin.H{"error": fault.Text})
			return
		}
		defer body.Free()
		if signed != "" && !h.signed(signed, body.Bytes()) {
			c.JSON(http.StatusUnauthorized, gin.H{"error": "the signature is not that of the body"})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), hookLimit)
		defer cancel()
		tools, err := h.renew(ctx, body.Bytes())
		if err == nil {
			c.JSON(http.StatusOK, gin.H{"tools": tools})
			return
		}
		status, why := http.StatusBadGateway, "the tools stay as they were: what describes them cannot be read; the bridge's log says why"
		if bad, ok := errors.AsType[*rest.CatalogError](err); ok {
			status, why = http.StatusUnprocessableEntity, bad.Error()
		} else if errors.Is(err, rest.ErrElsewhere) {
			status, why = http.StatusConflict, err.Error()
		}
		s.log.Warn("a webhook has changed nothing", "server", name, "err", err)
		c.JSON(status, gin.H{"error": why})
	}
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

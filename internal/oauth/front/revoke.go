package front

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/go-jose/go-jose/v4"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/seal"
)

// revocation ends the login of a token that the client no longer needs (RFC 7009). Unknown and expired tokens count as
// revoked. The provider's token is not revoked, because some providers would then end all of the user's logins at the
// bridge, even logins of other clients.
func (f *Front) revocation(w http.ResponseWriter, r *http.Request) {
	client, get, refusal := f.readForm(r)
	if refusal == nil && get("token") == "" {
		refusal = bad("invalid_request", "the form must have token")
	}
	if refusal == nil {
		refusal = f.revokeToken(context.WithoutCancel(r.Context()), client, get("token"), f.prover(r, client, get))
	}
	if refusal != nil {
		f.refused(w, refusal)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}

func (f *Front) revokeToken(ctx context.Context, client, text string, prove prover) *fault {
	id, tokenClient := f.loginOf(text)
	if id == "" {
		return nil
	}
	if refusal := f.limitUse(loginKey(id)); refusal != nil {
		return refusal
	}
	raw, err := f.o.Store.Get(ctx, loginKey(id))
	if err != nil {
		return f.storeFailed(err)
	}
	l := &login{}
	switch stored := raw != nil && f.open(loginKey(id), string(raw), l); {
	case stored && l.Client != seal.Fingerprint(client), !stored && tokenClient != "" && tokenClient != idOf(client):
		return bad("invalid_grant", "the token was issued to another client")
	case !stored && tokenClient == "" && !f.endings.owed.Contains(id):
		return nil // a refresh token of an ended login
	case stored && l.Keyed:
		if refusal := prove(); refusal != nil {
			return refusal
		}
	}
	f.o.Log.Info("a client ended a login", "client", idOf(client), "login", id)
	return f.revoke(ctx, id)
}

// loginOf returns the login of a refresh token or access token, and the client of an access token. For other texts,
// both are empty.
func (f *Front) loginOf(text string) (id, client string) {
	var shown refreshToken
	if f.open("refresh", text, &shown) {
		return shown.ID, ""
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return "", ""
	}
	var set jose.JSONWebKeySet
	if json.Unmarshal(f.keys, &set) != nil {
		return "", "" // cannot happen: derive has marshalled them
	}
	for _, key := range set.Keys {
		if claims, err := signed.Verify(key); err == nil {
			return gjson.GetBytes(claims, "sid").Str, gjson.GetBytes(claims, "client_id").Str
		}
	}
	return "", ""
}

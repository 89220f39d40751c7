package front

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/go-jose/go-jose/v4"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/seal"
)

// taken ends the login that a token is of: the client does not need it any more (RFC 7009).
// A token that is none, or none any more, is as good as ended. The provider is not told: some
// end all that a user has there by way of the bridge, and so the logins of other clients.
func (f *Front) taken(w http.ResponseWriter, r *http.Request) {
	client, get, no := f.asker(r)
	if no == nil && get("token") == "" {
		no = bad("invalid_request", "the form has no token")
	}
	if no == nil {
		no = f.takeBack(context.WithoutCancel(r.Context()), client, get("token"), f.prover(r, client, get))
	}
	if no != nil {
		f.refused(w, no)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}

func (f *Front) takeBack(ctx context.Context, client, text string, prove prover) *fault {
	id, mine := f.loginOf(text)
	if id == "" {
		return nil
	}
	if no := f.shows(loginKey(id)); no != nil {
		return no
	}
	raw, err := f.o.Store.Get(ctx, loginKey(id))
	if err != nil {
		return f.lost(err)
	}
	l := &login{}
	switch there := raw != nil && f.open(loginKey(id), string(raw), l); {
	case there && l.Client != seal.Fingerprint(client), !there && mine != "" && mine != idOf(client):
		return bad("invalid_grant", "the token is of another client")
	case !there && mine == "" && !f.endings.owed.Contains(id):
		return nil // a refresh token of a login that has ended
	case there && l.Keyed:
		if no := prove(); no != nil {
			return no
		}
	}
	f.o.Log.Info("a client has ended a login", "client", idOf(client), "login", id)
	return f.revoke(ctx, id)
}

// loginOf returns the login that a refresh token or an access token is of, and of an access
// token the client; nothing for another text.
func (f *Front) loginOf(text string) (id, client string) {
	var shown turn
	if f.open("refresh", text, &shown) {
		return shown.ID, ""
	}
	signed, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return "", ""
	}
	var set jose.JSONWebKeySet
	if json.Unmarshal(f.keys, &set) != nil {
		return "", "" // they are ours, and can be read
	}
	for _, key := range set.Keys {
		if claims, err := signed.Verify(key); err == nil {
			return gjson.GetBytes(claims, "sid").Str, gjson.GetBytes(claims, "client_id").Str
		}
	}
	return "", ""
}

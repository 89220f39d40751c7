package access

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	"github.com/mcp-bridge/bridge/internal/auth"
)

// Whoami is what the bridge makes of the key or the token that a request shows: the answer
// of GET /whoami.
type Whoami struct {
	// Principal is the caller, as logs have it; empty where everybody is one. Rule is the
	// access rule that has let it in.
	Principal string `json:"principal,omitempty"`
	Rule      string `json:"rule,omitempty"`
	// Issuer, Subject, Client and Scopes are those of its token, implied scopes among them;
	// Until is when that ends, the difference of clocks included. A key has none.
	Issuer  string     `json:"issuer,omitempty"`
	Subject string     `json:"subject,omitempty"`
	Client  string     `json:"client,omitempty"`
	Scopes  []string   `json:"scopes,omitempty"`
	Until   *time.Time `json:"until,omitempty"`
	// Servers are those that the caller may use, in their order.
	Servers []string `json:"servers"`
}

// PlaceFor returns what somebody is for who asks what the bridge makes of it. A token for
// one endpoint is shown with that in the query: for=/files/mcp.
func (a *Access) PlaceFor(r *http.Request, base string) Place {
	to := Place{base, r.URL.Query().Get("for")}
	if to.Endpoint != "" && (to.Endpoint[0] != '/' || !a.serves(to)) {
		to.Endpoint = ""
	}
	return to
}

// Whoami answers a caller who asks what the bridge makes of it.
func (a *Access) Whoami(w http.ResponseWriter, r *http.Request) {
	me := Whoami{Principal: auth.Principal(r.Context()), Servers: []string{}}
	me.Rule = auth.RuleOf(me.Principal)
	if t := auth.TokenOf(r.Context()); t != nil {
		until := t.Until.UTC()
		me.Issuer, me.Subject, me.Client, me.Scopes, me.Until = t.Issuer, t.Subject, t.Client, t.Scopes, &until
	}
	for _, name := range a.o.Servers() {
		if a.o.Allowed(name, me.Principal) == nil {
			me.Servers = append(me.Servers, name)
		}
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(me) // nothing in it can fail
	w.Header().Set("Cache-Control", "no-store")
	answer.Data(w, http.StatusOK, "application/json", []byte(text.String()))
}

package access

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	"github.com/mcp-bridge/bridge/internal/auth"
)

// Whoami is the answer of GET /whoami: the caller that the bridge recognizes by a key or a token.
type Whoami struct {
	// Principal is the caller, as in logs; empty without access rules. Rule is the access rule
	// that admits it.
	Principal string `json:"principal,omitempty"`
	Rule      string `json:"rule,omitempty"`
	// Issuer, Subject, Client and Scopes are the values of the caller's token, with implied scopes. Until
	// is the time when the token expires, with the tolerated clock skew. A key has none of these.
	Issuer  string     `json:"issuer,omitempty"`
	Subject string     `json:"subject,omitempty"`
	Client  string     `json:"client,omitempty"`
	Scopes  []string   `json:"scopes,omitempty"`
	Until   *time.Time `json:"until,omitempty"`
	// Servers are the servers that the caller may use, in the configured order.
	Servers []string `json:"servers"`
}

// TargetFor returns the target of a request for /whoami. A token for one endpoint is shown with the
// endpoint in the query: for=/files/mcp.
func (a *Access) TargetFor(r *http.Request, base string) Target {
	to := Target{Base: base, Endpoint: r.URL.Query().Get("for")}
	if to.Endpoint != "" && (to.Endpoint[0] != '/' || !a.serves(to)) {
		to.Endpoint = ""
	}
	return to
}

// Whoami answers GET /whoami.
func (a *Access) Whoami(w http.ResponseWriter, r *http.Request) {
	me := Whoami{Principal: auth.Principal(r.Context()), Servers: []string{}}
	me.Rule = auth.RuleOf(me.Principal)
	if t := auth.TokenOf(r.Context()); t != nil {
		until := t.Until.UTC()
		me.Issuer, me.Subject, me.Client, me.Scopes, me.Until = t.Issuer, t.Subject, t.Client, t.Scopes, &until
	}
	for _, name := range a.o.Bridge.Servers() {
		if a.o.Bridge.Allowed(name, me.Principal) == nil {
			me.Servers = append(me.Servers, name)
		}
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(me) // every member has a JSON form
	w.Header().Set("Cache-Control", "no-store")
	answer.Data(w, http.StatusOK, "application/json", []byte(text.String()))
}

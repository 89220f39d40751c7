package wire

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/address"
)

// Reach holds the servers of an API's operations, and decides which of them get credentials.
//
// Credentials, and everything else that the configuration adds to requests, go only to servers that
// the operator chose. These are Options.BaseURL and Options.Trusted, and the first server of a
// document in a file or in the configuration. For a document at a URL, the server from which the
// document was read is one of them, and the servers that the document names are not.
type Reach struct {
	o        *Options
	home     endpoint // the API's own server; its URL is nil if there is none
	operator origins  // the servers that the operator named
	trusted  origins  // the servers in operator, and the server from which the document was read
	keys     *keyring
}

// NewReach parses the addresses and credentials of o. It makes no connection.
func NewReach(o *Options) (*Reach, error) {
	r := &Reach{o: o}
	var err error
	r.home, err = server(o.Document, nil, o)
	if _, none := errors.AsType[Nowhere](err); err != nil && (!none || o.Document == nil) {
		return nil, err // if only home is missing, operations may still name their own servers
	}
	if r.home.URL != nil && !r.home.remote {
		r.operator = origins{r.home.URL}
	}
	for _, t := range o.Trusted {
		u, err := base(t)
		if err != nil {
			return nil, fmt.Errorf("trusted: %w", err)
		}
		r.operator = append(r.operator, u)
	}
	r.trusted = slices.Clone(r.operator)
	if own := r.document(); own != nil {
		r.trusted = append(r.trusted, own)
	}
	if r.keys, err = r.newKeyring(); err != nil {
		return nil, err
	}
	return r, nil
}

// document returns the URL of the document, or nil for a file.
func (r *Reach) document() *url.URL {
	if r.o.Document == nil || !address.IsHTTP(r.o.Document.Location) {
		return nil
	}
	u, err := url.Parse(r.o.Document.Location)
	if err != nil {
		return nil
	}
	return u
}

// server returns the server of an operation: its own, unless BaseURL is set, or else home.
func (r *Reach) server(op *openapi.Operation) (endpoint, error) {
	if r.home.URL == nil || r.o.BaseURL == "" && len(op.Servers) > 0 {
		return server(r.o.Document, op, r.o)
	}
	return r.home, nil
}

// Unserved returns why an operation with servers of its own cannot be called; nil if it can.
func (r *Reach) Unserved(op *openapi.Operation) error {
	if len(op.Servers) == 0 {
		return nil
	}
	_, err := r.server(op)
	return err
}

// Nowhere returns why no operation of the document has a server; nil if one has.
func (r *Reach) Nowhere() error {
	if r.o.Document == nil || r.home.URL != nil {
		return nil
	}
	_, err := server(r.o.Document, nil, r.o)
	none, _ := errors.AsType[Nowhere](err)
	for _, op := range r.o.Document.Operations {
		if _, err := r.server(op); err == nil {
			return nil
		}
	}
	return none
}

// Home returns the origin of the API's own server; empty if there is none.
func (r *Reach) Home() string {
	if r.home.URL == nil {
		return ""
	}
	return originOf(r.home.URL)
}

// Untrusted returns the origin of an operation's server if a document at a URL names that server and
// the operator did not choose it; otherwise it returns an empty text. refused reports that calls
// would carry values of the configuration, and so are not made.
func (r *Reach) Untrusted(op *openapi.Operation, settings Settings) (origin string, refused bool) {
	at, err := r.server(op)
	if err != nil || !r.untrusted(at) {
		return "", false
	}
	return originOf(at.URL), r.needs(op, at, settings)
}

// Tokens returns the origins of the token endpoints. Those in used get the clients' secrets. Those in
// refused do not, since a document at a URL names them.
func (r *Reach) Tokens() (used, refused []string) {
	r.keys.each(func(u *use) {
		switch {
		case !u.gets || u.from.Login:
		case u.refused != "":
			refused = append(refused, originOf(u.at.URL))
		default:
			used = append(used, originOf(u.at.URL))
		}
	})
	slices.Sort(used)
	slices.Sort(refused)
	return slices.Compact(used), slices.Compact(refused)
}

// Fills returns the key of the configuration that always sets a parameter, whatever the arguments
// are: "headers" or "auth", or an empty text.
func (r *Reach) Fills(op *openapi.Operation, p *openapi.Parameter) string {
	at, err := r.server(op)
	if err != nil || !r.trusted.has(at.URL) {
		return ""
	}
	for name := range r.o.Headers {
		if p.In == openapi.InHeader && openapi.SameHeader(name, p.Name) || p.In == openapi.InCookie && strings.EqualFold(name, "Cookie") {
			return "headers"
		}
	}
	for _, u := range r.keys.forOperation(op) {
		if u.fills(p.In, p.Name) {
			return "auth"
		}
	}
	return ""
}

func (r *Reach) untrusted(at endpoint) bool { return at.remote && !r.trusted.has(at.URL) }

// guard says which addresses of a host may be dialled.
type guard uint8

const (
	anyAddress  guard = iota
	noLinkLocal       // all but link-local and unusable ones: see remote.LinkLocal
	publicOnly        // only public ones, for a public document, whose author must not reach our network
)

func (r *Reach) guard(at endpoint) guard {
	switch {
	case !at.remote || r.operator.has(at.URL) || r.writtenByOperator(at):
		return anyAddress
	case at.public:
		return publicOnly
	}
	return noLinkLocal
}

// refuses reports whether the server's guard forbids the address in its URL.
func (r *Reach) refuses(at endpoint) bool {
	switch r.guard(at) {
	case noLinkLocal:
		return Blocked(at.URL)
	case publicOnly:
		return Blocked(at.URL) || inside(at.URL)
	}
	return false
}

// Refused returns the origin of an operation's server if no call may go there, since a document at
// a URL may not name that server. Otherwise it returns an empty text.
func (r *Reach) Refused(op *openapi.Operation) string {
	if at, err := r.server(op); err == nil && r.refuses(at) {
		return originOf(at.URL)
	}
	return ""
}

// writtenByOperator reports whether a server has the host of the document, and that host is Blocked. The
// operator has then chosen the host on purpose.
func (r *Reach) writtenByOperator(at endpoint) bool {
	own := r.document()
	return own != nil && own.Hostname() == at.Hostname() && Blocked(own)
}

// needs reports whether requests of an operation carry values of the configuration.
func (r *Reach) needs(op *openapi.Operation, at endpoint, settings Settings) bool {
	return len(r.keys.forOperation(op)) > 0 || len(r.o.Headers) > 0 || settings.Sets || at.filled
}

// refusal returns why a call to the server at may not be made, or nil. forward has the callers'
// headers to pass on.
func (r *Reach) refusal(p *Plan, c *Call, at endpoint, forward map[string]string) error {
	if r.refuses(at) {
		what := "which is no address for an API; the operator of the bridge can set base_url"
		if !Blocked(at.URL) {
			what = "on this machine or in a private network, and was itself read on the internet; the operator of the bridge can allow it with base_url or trusted"
		}
		return param.Refuse("was not sent: the document names the server %s, %s", originOf(at.URL), what)
	}
	if !r.untrusted(at) {
		return nil
	}
	needs := r.needs(p.op, at, c.Settings)
	for name := range forward {
		needs = needs || len(c.Header[http.CanonicalHeaderKey(name)]) > 0
	}
	if !needs {
		return nil
	}
	return param.Refuse("was not sent: the document names the server %s, and was read from another one. Credentials and other configured values do not go there; the operator of the bridge can allow it with base_url or trusted", originOf(at.URL))
}

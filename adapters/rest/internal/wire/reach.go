package wire

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/address"
)

// Reach says where the operations of an API are, and what of the configuration
// goes there.
//
// Credentials and all else that the configuration puts into requests go where the
// operator wants them: to Options.BaseURL and Options.Trusted; to the server that
// a document in a file, or in the configuration, names first; and to the server
// that a document at a URL was read from. What else a document at a URL names
// gets nothing of these, whoever has written it, now or later.
type Reach struct {
	o        *Options
	home     endpoint // the API's own server; its URL is nil if there is none
	operator origins  // that the operator has named as such
	trusted  origins  // these, and the API's own
	keys     *keyring
}

// NewReach looks at the addresses and credentials of o. It connects to nothing.
func NewReach(o *Options) (*Reach, error) {
	r := &Reach{o: o}
	var err error
	// An API without a server of its own may have operations that name theirs.
	if r.home, err = server(o.Document, nil, o); err != nil && (o.BaseURL != "" || o.Document == nil || len(o.Document.Servers) > 0) {
		return nil, err
	}
	if r.home.URL != nil && !r.home.far {
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

// document returns where the document was read; nil if that was no URL.
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

// of returns where an operation is.
func (r *Reach) of(op *openapi.Operation) (endpoint, error) {
	if r.home.URL == nil || r.o.BaseURL == "" && len(op.Servers) > 0 {
		return server(r.o.Document, op, r.o)
	}
	return r.home, nil
}

// Home returns the origin of the API's own server; empty if there is none.
func (r *Reach) Home() string {
	if r.home.URL == nil {
		return ""
	}
	return originOf(r.home.URL)
}

// Stranger returns the origin of an operation's server if it is one that a
// document at a URL has named and that gets nothing of the configuration;
// otherwise it is empty. refused: calls need something of that, and so are not
// made.
func (r *Reach) Stranger(op *openapi.Operation, settings Settings) (origin string, refused bool) {
	at, err := r.of(op)
	if err != nil || !r.stranger(at) {
		return "", false
	}
	return originOf(at.URL), r.needs(op, at, settings)
}

// Tokens returns the origins from which tokens come, and those from which they
// would come if a document at a URL had its way: nothing is sent to these.
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

// Fills returns what sends a parameter of an operation, whatever arguments say:
// "headers", "auth", or empty if nothing does.
func (r *Reach) Fills(op *openapi.Operation, p *openapi.Parameter) string {
	at, err := r.of(op)
	if err != nil || !r.trusted.has(at.URL) {
		return ""
	}
	for name := range r.o.Headers {
		if p.In == openapi.InHeader && strings.EqualFold(name, p.Name) || p.In == openapi.InCookie && strings.EqualFold(name, "Cookie") {
			return "headers"
		}
	}
	for _, u := range r.keys.of(op) {
		if u.place == p.In && (u.name == p.Name || p.In == openapi.InHeader && strings.EqualFold(u.name, p.Name)) {
			return "auth"
		}
	}
	return ""
}

func (r *Reach) stranger(at endpoint) bool { return at.far && !r.trusted.has(at.URL) }

// guard says how the address that a server's name stands for is looked at before it is
// dialled.
type guard uint8

const (
	unguarded guard = iota
	notLink         // it is none at which no API is: see remote.LinkLocal
	outside         // it is on the internet: so is the document, whose author need not know our network
)

func (r *Reach) guard(at endpoint) guard {
	switch {
	case !at.far || r.operator.has(at.URL) || r.literal(at):
		return unguarded
	case at.public:
		return outside
	}
	return notLink
}

// refuses reports whether the guard of a server refuses its address as it is written.
func (r *Reach) refuses(at endpoint) bool {
	switch r.guard(at) {
	case notLink:
		return Blocked(at.URL)
	case outside:
		return Blocked(at.URL) || inside(at.URL)
	}
	return false
}

// Refused returns the origin of an operation's server if nothing is sent there whatever the
// call: a document at a URL has named it, which may not. Otherwise it is empty.
func (r *Reach) Refused(op *openapi.Operation) string {
	if at, err := r.of(op); err == nil && r.refuses(at) {
		return originOf(at.URL)
	}
	return ""
}

// literal reports whether the operator has written the address himself, as that of
// the document.
func (r *Reach) literal(at endpoint) bool {
	own := r.document()
	return own != nil && own.Hostname() == at.Hostname() && Blocked(own)
}

// needs reports whether something of the configuration belongs to the requests of
// an operation.
func (r *Reach) needs(op *openapi.Operation, at endpoint, settings Settings) bool {
	return len(r.keys.of(op)) > 0 || len(r.o.Headers) > 0 || settings.Sets || at.filled
}

// withholds returns why a call is not made; nil if it may be.
func (r *Reach) withholds(p *Plan, c *Call, at endpoint, forward map[string]string) error {
	if r.refuses(at) {
		what := "which is no address for an API; base_url would say where it is"
		if !Blocked(at.URL) {
			what = "on this machine or in a private network, and was itself read on the internet; whoever runs the bridge can allow it with base_url or trusted"
		}
		return param.Refuse("was not sent: the document has it at %s, %s", originOf(at.URL), what)
	}
	if !r.stranger(at) {
		return nil
	}
	needs := r.needs(p.op, at, c.Settings)
	for name := range forward {
		needs = needs || len(c.Header[http.CanonicalHeaderKey(name)]) > 0
	}
	if !needs {
		return nil
	}
	return param.Refuse("was not sent: the document has it at %s, and was itself read elsewhere. Credentials and what else the configuration sends do not go there; whoever runs the bridge can allow it with base_url or trusted", originOf(at.URL))
}

// Reach says where the operations are.
func (s *Source) Reach() *Reach { return s.reach }

package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/sign"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Credential is one way to authenticate. Only the fields of one kind are set: for a security scheme
// of a document, the scheme's kind. Options.HTTP has client certificates.
type Credential struct {
	// Key is an API key. The scheme sets its place; without a scheme, Header, Query or Cookie does.
	Key string `yaml:"value"`
	// One of Header, Query and Cookie is the name under which Key is sent without a scheme.
	Header string `yaml:"header"`
	Query  string `yaml:"query"`
	Cookie string `yaml:"cookie"`
	// User and Password are for HTTP's basic authentication.
	User     string `yaml:"user"`
	Password string `yaml:"password"`
	// Bearer is a fixed token.
	Bearer string `yaml:"bearer"`
	// Client gets tokens by OAuth 2's client credentials grant. With Login, the tokens are those of
	// the person who ran "mcp-bridge login"; Client may then be nil, or name the authorization server
	// and the client.
	Client *Client `yaml:"client"`
	Login  bool    `yaml:"login"`
	// Exchange makes Client exchange each caller's token for a token of the API: see oauth.Settings.
	Exchange string `yaml:"exchange"`
	// AWS and Hook sign requests.
	AWS  *sign.AWS  `yaml:"aws"`
	Hook *sign.Hook `yaml:"hook"`
}

// use is a credential with the place where requests carry it.
type use struct {
	scheme string        // the document's security scheme; empty for the default
	place  openapi.Place // header, query or cookie; empty for a certificate or a signature
	name   string        // of the header, parameter or cookie
	value  string        // the whole value of the header, parameter or cookie
	scopes []string      // those that the operation requires

	gets    bool       // the value is a token, from the field tokens
	from    Credential // how to get tokens
	at      endpoint   // the token endpoint; no URL with Login
	refused string     // why the client's secret does not go to the endpoint; empty if it does
	tokens  *tokens

	signs  Credential   // has AWS or Hook if the credential signs requests
	signer sign.Signer  // the signer of signs
	hide   func(string) // masks a value from a hook; nil for AWS
}

// keyring holds the credentials of a source.
type keyring struct {
	named   map[string]use       // by scheme
	dflt    *use                 // Options.Default, or nil
	schemes []string             // names of the document's security schemes
	all     []*openapi.Operation // of the document
	unsaid  bool                 // no operation of the document says which schemes it needs
}

// newKeyring returns the credentials, assigned to the schemes of the document.
func (r *Reach) newKeyring() (*keyring, error) {
	o := r.o
	k := &keyring{named: map[string]use{}}
	if o.Document != nil {
		k.all = o.Document.Operations
		k.unsaid = !slices.ContainsFunc(k.all, func(op *openapi.Operation) bool { return len(op.Security) > 0 })
		for _, scheme := range o.Document.Schemes {
			k.schemes = append(k.schemes, scheme.Name)
			if scheme.Type == "mutualTLS" && o.HTTP.CertFile != "" {
				k.named[scheme.Name] = use{}
			}
			c, ok := o.Credentials[scheme.Name]
			if !ok {
				continue
			}
			u, err := r.useOf(c, scheme)
			if err != nil {
				return nil, fmt.Errorf("credentials for %s: %w", scheme.Name, err)
			}
			u.scheme = scheme.Name
			k.named[scheme.Name] = u
		}
	}
	for name := range o.Credentials {
		if !slices.Contains(k.schemes, name) {
			err := fmt.Errorf("credentials for %s: the document has no security scheme of that name", name)
			if near := validate.Nearest(name, k.schemes); near != "" {
				err = fmt.Errorf("%w; did you mean %s?", err, near)
			}
			return nil, err
		}
	}
	if o.Default == nil {
		return k, nil
	}
	var from *openapi.SecurityScheme
	if c := o.Default.Client; c != nil && c.TokenURL == "" && c.Issuer == "" && !o.Default.Login {
		schemes := r.tokenSchemes()
		for _, scheme := range schemes {
			if from = scheme; clientFlow(scheme).TokenURL != clientFlow(schemes[0]).TokenURL {
				return nil, fmt.Errorf("credentials: client: the schemes %s and %s of the document have different token addresses: set token_url, or set the client below the name of one scheme", schemes[0].Name, scheme.Name)
			}
		}
		for _, scheme := range schemes { // so that tokens have the scopes of operations
			u, err := r.useOf(*o.Default, scheme)
			if err != nil {
				return nil, fmt.Errorf("credentials: %w", err)
			}
			k.named[scheme.Name] = u
		}
	}
	u, err := r.useOf(*o.Default, from)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	k.dflt = &u
	return k, nil
}

// useOf returns a credential with its place. The scheme sets the place, or if that is nil, the
// credential itself.
func (r *Reach) useOf(c Credential, scheme *openapi.SecurityScheme) (use, error) {
	kind := ""
	if scheme != nil {
		kind = scheme.Type
		if kind == "http" {
			kind = scheme.Scheme
		}
	}
	is := func(kinds ...string) bool { return kind == "" || slices.Contains(kinds, kind) }
	switch {
	case c.AWS != nil, c.Hook != nil:
		return use{signs: c}, nil
	case (c.Client != nil || c.Login) && is("oauth2", "openIdConnect", "bearer"):
		u := use{
			place: openapi.InHeader,
			name:  "Authorization",
			gets:  true,
			from:  c,
			at:    endpoint{URL: &url.URL{}},
		}
		err := c.CheckTokens()
		switch {
		case c.Login && r.o.BaseURL == "":
			err = errors.New("login needs base_url: the address of the API, for which a person signs in")
		case err == nil && !c.Login:
			u.at, u.refused, err = r.tokenURL(c.Client, scheme)
		}
		return u, err
	case c.Bearer != "" && is("bearer", "oauth2", "openIdConnect"):
		return headerUse("Authorization", "Bearer "+c.Bearer)
	case (c.User != "" || c.Password != "") && is("basic"):
		if strings.Contains(c.User, ":") {
			return use{}, errors.New("the user name must not contain a colon")
		}
		return headerUse("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.User+":"+c.Password)))
	case c.Key != "" && kind == "apiKey":
		return keyUse(scheme.In, scheme.Param, c.Key)
	case c.Key != "" && kind == "":
		switch {
		case c.Query != "":
			return keyUse(openapi.InQuery, c.Query, c.Key)
		case c.Cookie != "":
			return keyUse(openapi.InCookie, c.Cookie, c.Key)
		case c.Header != "":
			return headerUse(c.Header, c.Key)
		}
		return use{}, errors.New("the value has no place: set header, query or cookie")
	case c.Key != "" && scheme.Type == "http": // neither basic nor bearer: Key is the whole value of the header
		return headerUse("Authorization", c.Key)
	}
	if kind == "" {
		return use{}, errors.New("no credential is given: set value, bearer, user and password, client, login, aws or hook")
	}
	return use{}, fmt.Errorf("they do not fit the document's scheme, which has type %s", kind)
}

func headerUse(name, value string) (use, error) { return keyUse(openapi.InHeader, name, value) }

func keyUse(place openapi.Place, name, value string) (use, error) {
	if place == openapi.InHeader {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return use{}, errors.New("they contain a line break or another character that a header cannot have")
		}
		name = http.CanonicalHeaderKey(name)
	}
	return use{
		place: place,
		name:  name,
		value: value,
	}, nil
}

// each calls f with every credential; f may change it.
func (k *keyring) each(f func(*use)) {
	for name, u := range k.named {
		f(&u)
		k.named[name] = u
	}
	if k.dflt != nil {
		f(k.dflt)
	}
}

// forOperation returns the credentials for an operation: those that it needs, and those whose places
// are parameters of the operation. A parameter of an operation outside the document is an argument
// of clients instead. If no operation says what it needs, all credentials are sent.
func (k *keyring) forOperation(op *openapi.Operation) []use {
	uses := k.needed(op)
	add := func(u use) {
		if !slices.ContainsFunc(uses, func(own use) bool { return own.fills(u.place, u.name) }) {
			uses = append(uses, u)
		}
	}
	everything := len(uses) == 0 && op.Security == nil && k.unsaid
	for _, name := range k.schemes {
		u := k.named[name]
		sent := u.place != "" || u.signs.AWS != nil || u.signs.Hook != nil
		named := slices.ContainsFunc(op.Parameters, func(p *openapi.Parameter) bool { return u.fills(p.In, p.Name) })
		if sent && everything || named && slices.Contains(k.all, op) {
			add(u)
		}
	}
	if len(uses) == 0 && everything && k.dflt != nil {
		add(*k.dflt)
	}
	return uses
}

// fills reports whether the credential has the place and the name of a parameter.
func (u *use) fills(in openapi.Place, name string) bool {
	return u.place == in && (u.name == name || in == openapi.InHeader && openapi.SameHeader(u.name, name))
}

// needed returns the credentials of the first alternative of an operation's security that is
// configured completely, or else the default. It returns none if the operation needs none.
func (k *keyring) needed(op *openapi.Operation) []use {
	for _, alternative := range op.Security {
		var uses []use
		whole := true
		for _, one := range alternative {
			u, ok := k.named[one.Name]
			whole = whole && ok
			u.scopes = one.Scopes
			uses = append(uses, u)
		}
		if whole && len(alternative) > 0 {
			return uses
		}
	}
	if k.dflt == nil || len(k.schemes) > 0 && len(op.Security) == 0 {
		return nil // the operation needs none
	}
	return []use{*k.dflt}
}

// Idle returns the schemes of the configured credentials that none of the operations gets. An empty
// name stands for the default.
func (r *Reach) Idle(ops []*openapi.Operation) []string {
	got := map[string]bool{}
	for _, op := range ops {
		for _, u := range r.keys.forOperation(op) {
			got[u.scheme] = true
		}
	}
	all := slices.Sorted(maps.Keys(r.o.Credentials))
	if r.o.Default != nil {
		all = append(all, "")
	}
	return slices.DeleteFunc(all, func(name string) bool { return got[name] })
}

// Wanted says how to set credentials for an operation. It is empty if the operation has credentials
// or needs none.
func (r *Reach) Wanted(op *openapi.Operation) string {
	if r.o.Document == nil || len(op.Security) == 0 || len(r.keys.needed(op)) > 0 {
		return ""
	}
	var ways []string
	for _, one := range op.Security {
		way := r.wayOf(one)
		if way == "" {
			return "" // the operation needs no credentials, or a certificate
		}
		if !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	return strings.Join(ways, ", or ")
}

// wayOf says how to set the credentials of one alternative. It is empty if a scheme has a kind for
// which there is no setting.
func (r *Reach) wayOf(alternative openapi.Requirement) string {
	if len(alternative) == 0 {
		return ""
	}
	var settings, flags []string
	for _, one := range alternative {
		i := slices.IndexFunc(r.o.Document.Schemes, func(s *openapi.SecurityScheme) bool { return s.Name == one.Name })
		if i < 0 {
			return ""
		}
		setting, header := "", ""
		switch s := r.o.Document.Schemes[i]; {
		case s.Type == "apiKey" && s.In == openapi.InHeader:
			setting, header = "value: KEY", s.Param+": KEY"
		case s.Type == "apiKey":
			setting = "value: KEY"
		case s.Type == "http" && s.Scheme == "basic":
			setting, header = "user: NAME, password: PASSWORD", "Authorization: Basic BASE64"
		case s.Type == "http", s.Type == "oauth2", s.Type == "openIdConnect":
			setting, header = "bearer: TOKEN", "Authorization: Bearer TOKEN"
		default:
			return ""
		}
		settings = append(settings, one.Name+": { "+setting+" }")
		if header != "" {
			flags = append(flags, "--header '"+header+"'")
		}
	}
	way := "auth: { " + strings.Join(settings, ", ") + " }"
	if len(flags) == len(alternative) {
		way += " (" + strings.Join(flags, " ") + ")"
	}
	return way
}

// taken reports whether a credential has that place and that encoded name.
func (k *keyring) taken(in openapi.Place, encoded string) bool {
	is := func(u use) bool { return u.place == in && param.Escape(u.name, param.Unreserved) == encoded }
	for _, u := range k.named {
		if is(u) {
			return true
		}
	}
	return k.dflt != nil && is(*k.dflt)
}

func (o *Options) credentials() []Credential {
	all := slices.Collect(maps.Values(o.Credentials))
	if o.Default != nil {
		all = append(all, *o.Default)
	}
	return all
}

// secrets returns the texts that no result or log may contain.
func (k *keyring) secrets(o *Options) []string {
	var out []string
	for _, c := range o.credentials() {
		out = append(out, c.Key, c.Password, c.Bearer)
		if c.Password != "" {
			out = append(out, base64.StdEncoding.EncodeToString([]byte(c.User+":"+c.Password)))
		}
		if c.Client != nil {
			out = append(out, c.Client.Secret)
		}
		if c.AWS != nil {
			out = append(out, c.AWS.SecretKey, c.AWS.SessionToken)
		}
		if c.Hook != nil {
			out = append(out, slices.Collect(maps.Values(c.Hook.Headers))...)
		}
	}
	for name, value := range o.Headers {
		if sanitize.MayNameSecret(name) {
			out = append(out, value)
		}
	}
	return out
}

package param

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// assembly is a request in progress.
type assembly struct {
	tool    *openapi.Tool
	values  map[string]gjson.Result // the arguments by name
	header  http.Header
	query   []string // encoded pairs, or the whole query for an InQueryString parameter
	cookies []string
	o       Options
	fetched int // files that were read by address
	read    int // bytes of these files
}

// Options are an API's settings for its requests.
type Options struct {
	// MaxFile bounds one file, in bytes.
	MaxFile int
	// Taken reports whether a credential has that place and that encoded name. No member of an
	// argument may have the name. Taken may be nil.
	Taken func(in openapi.Place, name string) bool
	// Query is the query of the server's own address. No member of an argument may have one of its
	// names.
	Query string
	// Fetch reads the file at an address. If it is nil, addresses are refused.
	Fetch func(uri string) (*File, error)
}

// Request has the parts of a request that depend on the arguments of a call.
type Request struct {
	Path, Query string // of the operation, encoded
	Header      http.Header
	Body        []byte // nil without a body
}

// Assemble puts the arguments of a call, a JSON object, in their places. The error is a Refusal, or an
// error of Options.Fetch.
func Assemble(t *openapi.Tool, args []byte, o Options) (*Request, error) {
	a := &assembly{
		tool:   t,
		values: map[string]gjson.Result{},
		header: http.Header{},
		o:      o,
	}
	var err error
	gjson.ParseBytes(args).ForEach(func(k, v gjson.Result) bool {
		a.values[k.String()], err = renamed(k.String(), v, t.Keys)
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	op := t.Operation
	path, query, err := a.path(op.Path)
	if err != nil {
		return nil, err
	}
	if query != "" {
		a.query = append(a.query, query)
	}
	for _, arg := range t.Arguments {
		v, ok := a.values[arg.Name]
		if !ok || arg.Parameter == nil || absent(v) {
			continue
		}
		switch arg.Place {
		case openapi.InQuery:
			err = a.inQuery(arg, v)
		case openapi.InHeader:
			err = a.inHeader(arg, v)
		case openapi.InCookie:
			err = a.inCookie(arg, v)
		case openapi.InQueryString:
			err = a.inQueryString(arg, v)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(a.cookies) > 0 {
		a.header.Set("Cookie", strings.Join(a.cookies, "; "))
	}
	r := &Request{
		Header: a.header,
		Path:   path,
		Query:  strings.Join(a.query, "&"),
	}
	if r.Body, err = a.body(); err != nil {
		return nil, err
	}
	a.header.Set("Accept", accept(op))
	return r, nil
}

// content returns a value in a media type. A scalar is text unless the type is JSON; all else is
// JSON.
func content(arg, contentType string, v gjson.Result) (string, error) {
	if !httpio.IsJSON(contentType) && v.Type != gjson.JSON {
		return text(arg, v, false)
	}
	return string(rawjson.Compact([]byte(v.Raw))), nil
}

// inQuery adds a parameter to the query.
func (a *assembly) inQuery(arg openapi.Argument, v gjson.Result) error {
	p := arg.Parameter
	keep := Unreserved
	if p.AllowReserved {
		keep = reservedQuery
	}
	if p.ContentType != "" {
		value, err := content(arg.Name, p.ContentType, v)
		a.query = append(a.query, Escape(p.Name, Unreserved)+"="+Escape(value, keep))
		return err
	}
	s := styledParameter(arg.Name, p, v, keep)
	pairs, err := s.pairs()
	for _, one := range pairs {
		if spread := Escape(p.Name, Unreserved); one.name != spread && !strings.HasPrefix(one.name, spread+"%5B") {
			if err := a.checkName(arg, openapi.InQuery, one.name); err != nil {
				return err
			}
		}
		a.query = append(a.query, one.String())
	}
	return err
}

// checkName refuses a member of an exploded object that has the name of another parameter in the same
// place, or of a credential. The server would take the member for the other value.
func (a *assembly) checkName(arg openapi.Argument, in openapi.Place, encoded string) error {
	taken := func(name string) error {
		if Escape(name, Unreserved) != encoded {
			return nil
		}
		return Refuse("%s: must not have a member called %s, as another parameter is", arg.Name, name)
	}
	others := slices.Clone(a.tool.Operation.Parameters)
	for _, other := range a.tool.Arguments { // including arguments of the configuration
		others = append(others, other.Parameter)
	}
	for _, other := range others {
		if other != nil && other != arg.Parameter && other.In == in {
			if err := taken(other.Name); err != nil {
				return err
			}
		}
	}
	if in == openapi.InQuery {
		_, fixed, _ := strings.Cut(a.tool.Operation.Path, "?")
		for one := range strings.FieldsFuncSeq(fixed+"&"+a.o.Query, func(c rune) bool { return c == '&' }) {
			name, _, _ := strings.Cut(one, "=")
			if plain, err := url.QueryUnescape(name); err == nil {
				name = plain
			}
			if err := taken(name); err != nil {
				return err
			}
		}
	}
	if a.tool.Operation.Redirects(in, encoded) || a.o.Taken != nil && a.o.Taken(in, encoded) {
		return Refuse("%s: must not have a member called %s", arg.Name, encoded)
	}
	return nil
}

// inQueryString makes a value the whole query (OpenAPI 3.2).
func (a *assembly) inQueryString(arg openapi.Argument, v gjson.Result) error {
	p := arg.Parameter
	if httpio.BaseType(p.ContentType) == httpio.Form && v.IsObject() {
		fields, err := a.formPairs(arg.Name, v, nil)
		for _, one := range fields {
			name, _, _ := strings.Cut(one, "=")
			if err := a.checkName(arg, openapi.InQuery, name); err != nil {
				return err
			}
		}
		a.query = append(a.query, fields...)
		return err
	}
	value, err := content(arg.Name, p.ContentType, v)
	a.query = append(a.query, Escape(value, Unreserved))
	return err
}

// inHeader adds a header.
func (a *assembly) inHeader(arg openapi.Argument, v gjson.Result) error {
	p := arg.Parameter
	if openapi.OfConnection(p.Name) || !httpguts.ValidHeaderFieldName(p.Name) {
		return Refuse("%s: an argument cannot set the header %.60q", arg.Name, p.Name)
	}
	var value string
	var err error
	if p.ContentType != "" {
		value, err = content(arg.Name, p.ContentType, v)
	} else {
		s := styledParameter(arg.Name, p, v, everything)
		s.style = "simple"
		value, err = s.path()
	}
	if err != nil {
		return err
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		return Refuse("%s: has a line break or another character that a header cannot have", arg.Name)
	}
	a.header[http.CanonicalHeaderKey(p.Name)] = []string{value}
	return nil
}

// inCookie adds cookies: several for an exploded array or object.
func (a *assembly) inCookie(arg openapi.Argument, v gjson.Result) error {
	p := arg.Parameter
	keep := Unreserved
	switch {
	case p.Style == "cookie": // OpenAPI 3.2: characters that a cookie can have are not encoded
		keep = encodedCookie
	case p.AllowReserved:
		keep = CookieOctets
	}
	if p.ContentType != "" {
		value, err := content(arg.Name, p.ContentType, v)
		a.cookies = append(a.cookies, Escape(p.Name, CookieNames)+"="+Escape(value, keep))
		return err
	}
	s := styledParameter(arg.Name, p, v, keep)
	pairs, err := s.pairs()
	for _, one := range pairs {
		if one.name != Escape(p.Name, Unreserved) { // from an exploded object
			if err := a.checkName(arg, openapi.InCookie, one.name); err != nil {
				return err
			}
		} else {
			one.name = Escape(p.Name, CookieNames)
		}
		a.cookies = append(a.cookies, one.String())
	}
	return err
}

// CookieNames holds the characters of tokens (RFC 9110), such as names of cookies, without %.
var CookieNames = newSet("!#$&'*+^`|")

// accept returns the Accept header: the types that the operation declares for success, or else
// JSON.
func accept(op *openapi.Operation) string {
	var types []string
	for _, r := range op.Responses {
		if !strings.HasPrefix(r.Status, "2") {
			continue
		}
		for _, m := range r.Content {
			t := httpio.BaseType(m.Type)
			if t != "" && t != "*/*" && len(types) < 8 && !slices.Contains(types, t) && httpguts.ValidHeaderFieldValue(t) {
				types = append(types, t)
			}
		}
	}
	if len(types) == 0 {
		return "application/json, */*;q=0.8"
	}
	return strings.Join(append(types, "*/*;q=0.1"), ", ")
}

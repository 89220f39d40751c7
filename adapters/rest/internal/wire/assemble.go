package wire

import (
	"errors"
	"net/http"
	"slices"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Plan returns the request that a call would send. The error is a Refusal or validate.Faults if the
// arguments are wrong.
//
// It sends nothing: a file that is a resource is replaced by its address.
func (s *Source) Plan(c *Call) (*Plan, error) {
	if c.Resource == nil {
		return s.plan(c, nil)
	}
	return s.plan(c, func(uri string) (*param.File, error) {
		if _, err := c.Resource(uri); err != nil {
			return nil, err
		}
		return &param.File{Data: []byte("(what is at " + uri + ")")}, nil
	})
}

// check returns the arguments after a check with the schema. A model may know the document's own
// names from elsewhere, and use them instead of the names that clients see: if that gives fewer
// faults, check renames the arguments.
func (s *Source) check(t *openapi.Tool, schema, args []byte) ([]byte, error) {
	texts := func(name string) bool { // reports whether 5 and "5" make the same request
		return slices.ContainsFunc(t.Arguments, func(a openapi.Argument) bool {
			return a.Name == name && a.Parameter != nil && a.Parameter.ContentType == ""
		})
	}
	checked, err := s.schemas.CheckTexts(schema, args, len(t.InputSchema) > 0, texts)
	faults, wrong := errors.AsType[validate.Faults](err)
	if !wrong {
		return checked, err
	}
	own, changed := param.ByShownNames(t, args)
	if !changed {
		return checked, err
	}
	again, err := s.schemas.CheckTexts(schema, own, len(t.InputSchema) > 0, texts)
	if others, wrong := errors.AsType[validate.Faults](err); wrong && len(others) >= len(faults) {
		return checked, faults
	}
	return again, err
}

// plan is Plan with files read by fetch. If only the server is unusable, plan returns the request
// with the error.
func (s *Source) plan(c *Call, fetch func(uri string) (*param.File, error)) (*Plan, error) {
	schema := c.Tool.InputSchema
	if len(schema) == 0 {
		schema = []byte("{}")
	}
	args, err := s.check(c.Tool, schema, c.Args)
	if unusable, ok := errors.AsType[*validate.SchemaError](err); ok {
		s.once(c.Tool.Name, "the arguments of a tool are not checked", unusable)
	} else if faults, ok := errors.AsType[validate.Faults](err); ok {
		return nil, faults.Of(c.Tool.Name)
	} else if err != nil {
		return nil, err
	}
	if c.Rewrite != nil {
		if args, err = c.Rewrite(args); err != nil {
			return nil, err
		}
	}
	op := c.Tool.Operation
	o := param.Options{
		MaxFile: int(s.o.Limits.File),
		Taken:   s.reach.keys.taken,
		Fetch:   fetch,
	}
	at, unusable := s.reach.server(op)
	if unusable == nil {
		o.Query = at.RawQuery
	}
	r, err := param.Assemble(c.Tool, args, o)
	if err != nil {
		return nil, err
	}
	s.withhold(r.Header)
	p := &Plan{
		op:     op,
		Method: op.Method,
		Header: r.Header,
		Body:   r.Body,
		path:   r.Path,
		query:  r.Query,
	}
	p.settings, p.mask, p.hidden = c.Settings, s.mask, s.hidden
	if unusable != nil {
		return p, param.Refuse("%s", unusable)
	}
	p.base = at.RawQuery
	if p.URL, err = param.Join(at.URL, p.path, p.query); err != nil {
		return nil, err
	}
	p.guard = s.reach.guard(at)
	if err := s.reach.refusal(p, c, at, s.forward); err != nil {
		return p, err
	}
	if s.reach.trusted.has(p.URL) {
		s.addConfigured(p, c)
		p.trace = c.Trace
	}
	for _, u := range p.uses {
		if u.refused != "" && !p.forwards(u.name) {
			return p, param.Refuse("was not sent: %s", u.refused)
		}
	}
	return p, nil
}

// withhold removes the headers in Options.Withheld.
func (s *Source) withhold(h http.Header) {
	for name := range h {
		if slices.ContainsFunc(s.o.Withheld, func(one string) bool { return openapi.SameHeader(one, name) }) {
			delete(h, name)
		}
	}
}

// addConfigured adds what only trusted servers get: Options.Headers, forwarded headers and
// credentials.
func (s *Source) addConfigured(p *Plan, c *Call) {
	for name := range s.o.Headers {
		replace(p.Header, http.CanonicalHeaderKey(name), nil)
	}
	for name, value := range s.o.Headers {
		name = http.CanonicalHeaderKey(name)
		p.Header[name] = []string{value}
		p.fixed = append(p.fixed, name)
	}
	for name, to := range s.forward {
		if values := c.Header[name]; len(values) > 0 {
			replace(p.Header, to, slices.Clone(values))
			p.forwarded = append(p.forwarded, to)
		}
	}
	p.uses, p.subject = s.reach.keys.forOperation(p.op), c.Subject
}

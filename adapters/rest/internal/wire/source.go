package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Options say how to reach one API. A field with the zero value has a default.
type Options struct {
	// Name is the API's name in file addresses: rest://NAME/path.
	Name string
	// Document describes the API: its servers and security schemes. It is nil if all tools are
	// hand-written; then BaseURL is required.
	Document *openapi.Document
	// BaseURL replaces the servers that the document and its operations name.
	BaseURL string
	// Variables are values for variables in server addresses.
	Variables map[string]string
	// HTTP has the settings of connections, such as certificates and the proxy. Its URL and Headers
	// are ignored.
	HTTP remote.Config
	// Headers are sent with every request. They win over arguments.
	Headers map[string]string
	// Credentials are keyed by the names of the document's security schemes. Default is for
	// operations that get none of these, unless the document has schemes and the operation needs
	// none.
	Credentials map[string]Credential
	Default     *Credential
	// Secrets are further texts to mask in results and in the log.
	Secrets []string
	// Trusted are further origins, such as https://uploads.example.com, that get credentials,
	// Headers and forwarded headers.
	Trusted []string
	// Forward lists the callers' headers to pass on, each as NAME or NAME as OTHER. They win over
	// credentials.
	Forward []string
	// Withheld are headers that neither arguments nor settings of a tool may set.
	Withheld []string

	Timeout    time.Duration // of a call with all its attempts; 30 s if 0
	MaxTimeout time.Duration // bounds Timeout and that of a tool; no limit if 0
	Retries    int           // of a request; 2 if 0, none if negative
	Rate       limits.Rate   // of requests; no limit if 0; a Burst of 0 means the requests of one second
	Concurrent int           // calls at a time; 64 if 0
	// Breaker says when a failing host gets no more requests. Failures are requests without an
	// answer, and the statuses 502, 503 and 504. All attempts of a call count as one.
	Breaker breaker.Options
	// CacheBytes is the size of the cache for answers to GET. There is no cache if it is 0.
	CacheBytes int

	MaxAnswer int // bytes of text in a result; 100 KiB if 0
	MaxBody   int // bytes read of an answer, decompressed; 8 MiB if 0
	MaxFile   int // bytes of one file in arguments; 10 MiB if 0

	// Budget bounds the requests. Sources of the same API share it. If it is nil, the source has its own, by
	// Rate, Concurrent, Breaker and CacheBytes.
	Budget *Budget

	// Schemas checks arguments. Sources may share it. If it is nil, the source has its own.
	Schemas *validate.Cache
	Log     *slog.Logger // nil discards
}

// Source makes calls to one API. Its methods are safe for concurrent use.
type Source struct {
	o          Options
	reach      *Reach
	http       doer
	clients    map[clientKey]doer // for servers that http must not reach
	forward    map[string]string  // by the caller's header: the header of the request
	schemas    *validate.Cache
	budget     *Budget
	log        *slog.Logger
	hidden     map[string]bool // configured headers whose values are secret
	mismatched sync.Map        // the warnings that once has logged
	misplaced  sync.Map        // the origins that warnRefused has logged
	secrets    *sanitize.Mask  // the configured secrets, and tokens
	life       context.Context
	stop       context.CancelFunc
	closeIdle  func()

	mu     sync.Mutex // guards closed
	closed bool
	wg     sync.WaitGroup // of calls
}

// clientKey says how a client for less trusted servers differs from Source.http.
type clientKey struct {
	bare  bool // without the client certificate
	guard guard
}

// doer sends requests, as http.Client does.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

var errClosed = errors.New("the source is closed")

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 30 * time.Second

const (
	defaultRetries   = 2
	defaultMaxAnswer = 100 << 10
	defaultMaxBody   = 8 << 20
	defaultMaxFile   = 10 << 20
	defaultSchemas   = 256
)

// New returns a source. It reads the files that o.HTTP names, and makes no connection.
func New(o Options) (*Source, error) {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Retries = cmp.Or(o.Retries, defaultRetries)
	o.MaxAnswer = cmp.Or(o.MaxAnswer, defaultMaxAnswer)
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBody)
	o.MaxFile = cmp.Or(o.MaxFile, defaultMaxFile)
	s := &Source{
		o:       o,
		schemas: o.Schemas,
		log:     o.Log,
		budget:  o.Budget,
		forward: map[string]string{},
	}
	if s.schemas == nil {
		s.schemas = validate.NewCache(defaultSchemas)
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	client, err := remote.New(o.HTTP)
	if err != nil {
		return nil, err
	}
	s.http, s.closeIdle = client, client.Close
	if err := s.openClients(client); err != nil {
		return nil, err
	}
	if s.reach, err = NewReach(&s.o); err != nil {
		return nil, err
	}
	if err := s.checkHeaders(&o); err != nil {
		return nil, err
	}
	if s.budget == nil {
		s.budget = NewBudget(&o)
	}
	s.life, s.stop = context.WithCancel(context.Background())
	if err := errors.Join(s.openTokens(), s.openSigners()); err != nil {
		s.stop()
		s.closeIdle()
		return nil, err
	}
	secrets := append(s.reach.keys.secrets(&o), o.Secrets...)
	if home := s.reach.home.URL; home != nil {
		for name, values := range home.Query() {
			if sanitize.MayNameSecret(name) {
				secrets = append(secrets, values...)
			}
		}
	}
	s.hidden = map[string]bool{}
	for name, value := range o.Headers {
		s.hidden[http.CanonicalHeaderKey(name)] = sanitize.MayNameSecret(name) || slices.ContainsFunc(o.Secrets, func(t string) bool { return t != "" && strings.Contains(value, t) })
	}
	s.secrets = sanitize.NewMask(masked, long(secrets)...)
	return s, nil
}

// openClients opens the clients for servers that the first client must not reach.
func (s *Source) openClients(first *remote.Client) error {
	s.clients = map[clientKey]doer{}
	all := []*remote.Client{first}
	for _, m := range []clientKey{{true, anyAddress}, {false, noLinkLocal}, {true, noLinkLocal}, {false, publicOnly}, {true, publicOnly}} {
		if m.bare && s.o.HTTP.CertFile == "" || m.guard != anyAddress && s.o.Document == nil {
			continue
		}
		c := s.o.HTTP
		if m.bare {
			c.CertFile, c.KeyFile = "", ""
		}
		switch m.guard {
		case noLinkLocal:
			c.Refuses = remote.LinkLocal
		case publicOnly:
			c.Outside = true
		}
		client, err := remote.New(c)
		if err != nil {
			return err
		}
		s.clients[m] = client
		all = append(all, client)
	}
	s.closeIdle = func() {
		for _, c := range all {
			c.Close()
		}
	}
	return nil
}

// client returns the client for servers with the guard g; bare excludes the client certificate.
func (s *Source) client(bare bool, g guard) doer {
	c := clientKey{bare && s.o.HTTP.CertFile != "", g}
	if c == (clientKey{}) {
		return s.http
	}
	return s.clients[c]
}

// checkHeaders checks the configured headers and Options.Forward, and sets s.forward.
func (s *Source) checkHeaders(o *Options) error {
	for name, value := range o.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || openapi.OfConnection(name) && !strings.EqualFold(name, "Cookie") {
			return fmt.Errorf("headers: %s cannot be sent", name)
		}
	}
	for _, rule := range o.Forward {
		from, to, ok := strings.Cut(rule, " as ")
		from, to = strings.TrimSpace(from), strings.TrimSpace(to)
		if !ok {
			to = from
		}
		for _, name := range []string{from, to} {
			if !httpguts.ValidHeaderFieldName(name) {
				return fmt.Errorf("forward: %q is not the name of a header", name)
			}
			if remote.Reserved(name) || openapi.OfConnection(name) && !strings.EqualFold(name, "Cookie") || strings.HasPrefix(http.CanonicalHeaderKey(name), "Content-") {
				return fmt.Errorf("forward: %s belongs to the connection and cannot be passed on", name)
			}
		}
		s.forward[http.CanonicalHeaderKey(from)] = http.CanonicalHeaderKey(to)
	}
	return nil
}

// Close ends calls in flight with an error, and returns when all have ended.
func (s *Source) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.wg.Wait()
	s.closeIdle()
}

// Call is one call of a tool.
type Call struct {
	Tool *openapi.Tool
	Args []byte // a JSON object, or nothing
	// Header has the caller's headers. Only those in Options.Forward are passed on.
	Header http.Header
	// Subject is the caller's token, to exchange for a token of the API; it may be nil.
	Subject *identity.Subject
	// Trace are headers of the call's trace. They do not replace headers of the request, and the
	// cache ignores them.
	Trace http.Header
	// Result is a gjson path of the configuration to the part of the answer that is the result. Pick
	// is a gjson path of the model to a part of that part. Empty selects all.
	Result, Pick string
	// PickName is the name of the argument with Pick; empty if the tool has no such argument.
	PickName string
	// Progress, unless nil, is called with each part of a stream. n counts from 1.
	Progress func(n int, text string)
	// Rewrite, unless nil, turns checked arguments into arguments of the tool's operation: the
	// configuration may hide or rename arguments, or make a body of them. Clients see an error that
	// is a Refusal.
	Rewrite func(args []byte) ([]byte, error)
	// Resource returns the call that reads a resource, for arguments that are files. It is nil if
	// there are no resources. Clients see an error that is a Refusal.
	Resource func(uri string) (*Call, error)
	Settings Settings

	bare bool // the result shows the body only, and no headers
}

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
		MaxFile: s.o.MaxFile,
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

// replace sets a header, and removes headers that a server may take for the same one.
func replace(h http.Header, name string, values []string) {
	maps.DeleteFunc(h, func(other string, _ []string) bool { return openapi.SameHeader(other, name) })
	h[name] = values
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

// once logs a warning about a tool, but the same warning only once.
func (s *Source) once(tool, what string, err error) {
	if _, said := s.mismatched.LoadOrStore(tool+"\n"+what, true); !said {
		s.log.Warn(what, "tool", tool, "err", err)
	}
}

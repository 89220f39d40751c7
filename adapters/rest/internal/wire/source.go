package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/time/rate"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire/param"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/internal/auth/identity"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Options say how to reach one API. What is zero has a sensible default.
type Options struct {
	// Name is what the API is called in addresses of files: rest://NAME/path.
	Name string
	// Document describes the API: its servers and security schemes. nil when the
	// tools are all hand-written; then BaseURL is needed.
	Document *openapi.Document
	// BaseURL replaces the servers that the document and its operations name.
	BaseURL string
	// Variables are values for those in the addresses of servers.
	Variables map[string]string
	// HTTP holds certificates, the proxy and such. Its URL and Headers are not
	// used.
	HTTP remote.Config
	// Headers are sent with every request. They win over arguments.
	Headers map[string]string
	// Credentials are by the names of the document's security schemes. Default
	// is for operations without any of these, unless the document has schemes
	// and the operation says that it needs none.
	Credentials map[string]Credential
	Default     *Credential
	// Secrets are others that must not be shown, wherever they are sent.
	Secrets []string
	// Trusted are origins, such as https://uploads.example.com, that may have
	// credentials, Headers and forwarded headers beside the API's own.
	Trusted []string
	// Forward lists the callers' headers that are passed on, each as NAME or
	// NAME as OTHER. They win over credentials.
	Forward []string
	// Withheld are the names of headers that no argument sets, nor the settings of a tool.
	Withheld []string

	Timeout    time.Duration // of a call with all its attempts; 30 s
	MaxTimeout time.Duration // the longest that a tool's own Timeout may be; 0 for no limit
	Retries    int           // beyond the first attempt; 2, negative for none
	Rate       limits.Rate   // of requests; a Burst of 0 is as many as come in a second
	Concurrent int           // calls under way; 64
	// Breaker says when a host is left alone because it fails: requests that have
	// no answer, or one with the status 502, 503 or 504. All attempts of a call are
	// one of its calls.
	Breaker breaker.Options
	// CacheBytes is how much of the answers to GET may be kept; 0 for none.
	CacheBytes int

	MaxAnswer int // bytes of text in a result; 100 KB
	MaxBody   int // bytes that are read of an answer, decompressed; 8 MB
	MaxFile   int // bytes of one file in arguments; 10 MB

	// Schemas checks arguments; sources may share it. nil makes one.
	Schemas *validate.Cache
	Log     *slog.Logger
}

// Source makes calls to one API. It may be used by many goroutines.
type Source struct {
	o         Options
	reach     *Reach
	http      doer
	others    map[manner]doer   // for servers to which http does not go
	forward   map[string]string // from, to
	schemas   *validate.Cache
	pace      *rate.Limiter // or nil
	room      chan struct{}
	breakers  *breakers
	cache     *cache // or nil
	log       *slog.Logger
	hidden    map[string]bool // names of configured headers whose values nobody is shown
	misfit    sync.Map        // names of tools whose answers did not fit, said once
	misplaced sync.Map        // origins that nothing is sent to, said once
	lasting   int             // how many of secret are the configuration's
	life      context.Context
	stop      context.CancelFunc
	closeIdle func()

	mu     sync.Mutex // guards secret, closed
	secret []string   // the configuration's first, and then tokens
	closed bool
	wg     sync.WaitGroup // of calls
}

// manner is how a server is reached that is not trusted as others are.
type manner struct {
	bare  bool // without the certificate
	guard guard
}

// doer sends requests.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

var errClosed = errors.New("the source is closed")

// DefaultTimeout is that of Options.
const DefaultTimeout = 30 * time.Second

// Defaults of other Options.
const (
	defaultRetries    = 2
	defaultConcurrent = 64
	defaultMaxAnswer  = 100 << 10
	defaultMaxBody    = 8 << 20
	defaultMaxFile    = 10 << 20
	defaultSchemas    = 256
)

// New makes a source. It reads the files that o.HTTP names and connects to
// nothing.
func New(o Options) (*Source, error) {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Retries = cmp.Or(o.Retries, defaultRetries)
	o.Concurrent = cmp.Or(o.Concurrent, defaultConcurrent)
	o.MaxAnswer = cmp.Or(o.MaxAnswer, defaultMaxAnswer)
	o.MaxBody = cmp.Or(o.MaxBody, defaultMaxBody)
	o.MaxFile = cmp.Or(o.MaxFile, defaultMaxFile)
	s := &Source{o: o, schemas: o.Schemas, log: o.Log, room: make(chan struct{}, o.Concurrent), forward: map[string]string{}}
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
	if err := s.openOthers(client); err != nil {
		return nil, err
	}
	if s.reach, err = NewReach(&s.o); err != nil {
		return nil, err
	}
	if err := s.checkHeaders(&o); err != nil {
		return nil, err
	}
	if r := &s.o.Rate; r.PerSecond > 0 {
		r.Burst = cmp.Or(r.Burst, max(1, int(r.PerSecond)))
		s.pace = rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst)
	}
	if o.CacheBytes > 0 {
		s.cache = newCache(o.CacheBytes)
	}
	s.breakers = newBreakers(o.Breaker, s.log)
	s.life, s.stop = context.WithCancel(context.Background())
	if err := errors.Join(s.equipTokens(), s.equipSigners()); err != nil {
		s.stop()
		s.closeIdle()
		return nil, err
	}
	secrets := append(s.reach.keys.secrets(&o), o.Secrets...)
	if home := s.reach.home.URL; home != nil {
		for name, values := range home.Query() {
			if Sensitive(name) {
				secrets = append(secrets, values...)
			}
		}
	}
	s.hidden = map[string]bool{}
	for name, value := range o.Headers {
		s.hidden[http.CanonicalHeaderKey(name)] = Sensitive(name) || slices.ContainsFunc(o.Secrets, func(t string) bool { return t != "" && strings.Contains(value, t) })
	}
	for _, t := range secrets {
		s.secret = append(s.secret, spellings(t)...)
	}
	longestFirst(s.secret)
	s.secret = slices.Compact(s.secret)
	s.lasting = len(s.secret)
	return s, nil
}

// openOthers makes the clients for servers to which the first does not go.
func (s *Source) openOthers(first *remote.Client) error {
	s.others = map[manner]doer{}
	all := []*remote.Client{first}
	for _, m := range []manner{{true, unguarded}, {false, notLink}, {true, notLink}, {false, outside}, {true, outside}} {
		if m.bare && s.o.HTTP.CertFile == "" || m.guard != unguarded && s.o.Document == nil {
			continue
		}
		c := s.o.HTTP
		if m.bare {
			c.CertFile, c.KeyFile = "", ""
		}
		switch m.guard {
		case notLink:
			c.Refuses = remote.LinkLocal
		case outside:
			c.Outside = true
		}
		client, err := remote.New(c)
		if err != nil {
			return err
		}
		s.others[m] = client
		all = append(all, client)
	}
	s.closeIdle = func() {
		for _, c := range all {
			c.Close()
		}
	}
	return nil
}

// way returns what sends requests to an address.
func (s *Source) way(bare bool, g guard) doer {
	m := manner{bare && s.o.HTTP.CertFile != "", g}
	if m == (manner{}) {
		return s.http
	}
	return s.others[m]
}

// checkHeaders checks the configured headers and those to be passed on.
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
				return fmt.Errorf("forward: %s is the connection's own and is never passed on", name)
			}
		}
		s.forward[http.CanonicalHeaderKey(from)] = http.CanonicalHeaderKey(to)
	}
	return nil
}

// Close ends what is under way and returns when it has ended. Calls end with an
// error.
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
	// Header is what the caller sent; of it only what Options.Forward lists is
	// passed on.
	Header http.Header
	// Subject is the caller's token, for credentials that it is exchanged for; it may be nil.
	Subject *identity.Subject
	// Trace are headers that tell of the trace which the call belongs to, where
	// the request has none of these names. What is kept of answers does not
	// depend on them.
	Trace http.Header
	// Result is a gjson path that the configuration applies to the answer, and
	// Pick one that the model asks for, applied to what Result leaves.
	Result, Pick string
	// PickName is what the model knows Pick by; empty when it cannot ask.
	PickName string
	// Progress is told the parts of an answer that comes as a stream. n counts
	// them from 1.
	Progress func(n int, text string)
	// Rewrite, when not nil, turns the arguments, once they are checked against
	// the tool's schema, into those that the tool's Arguments speak of: where the
	// configuration hides some, renames them, or makes a body of them. An error
	// that is a Refusal is told as it is.
	Rewrite func(args []byte) ([]byte, error)
	// Resource returns the call that reads the resource at an address, for
	// arguments that are files; nil when there are no resources. An error that is
	// a Refusal is told as it is.
	Resource func(uri string) (*Call, error)
	// Settings are the tool's own.
	Settings Settings

	bare bool // the contents are wanted, and nothing about the answer
}

// Plan returns the request that a call would send. The error is a Refusal or
// validate.Faults when the arguments are to blame.
//
// Nothing is sent: in the place of a file that is a resource stands its address.
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

// check checks arguments. Names that had to be changed for clients may also be
// given as the document has them: models know these from elsewhere.
func (s *Source) check(t *openapi.Tool, schema, args []byte) ([]byte, error) {
	checked, err := s.schemas.Check(schema, args, len(t.InputSchema) > 0)
	faults, wrong := errors.AsType[validate.Faults](err)
	if !wrong {
		return checked, err
	}
	own, changed := param.ByShownNames(t, args)
	if !changed {
		return checked, err
	}
	again, err := s.schemas.Check(schema, own, len(t.InputSchema) > 0)
	if others, wrong := errors.AsType[validate.Faults](err); wrong && len(others) >= len(faults) {
		return checked, faults
	}
	return again, err
}

// plan is Plan with files that fetch reads. Where there is a request, and only no
// server for it, the plan is there beside the error.
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
	r, err := param.Assemble(c.Tool, args, param.Options{MaxFile: s.o.MaxFile, Taken: s.reach.keys.taken, Fetch: fetch})
	if err != nil {
		return nil, err
	}
	s.withhold(r.Header)
	op := c.Tool.Operation
	p := &Plan{op: op, Method: op.Method, Header: r.Header, Body: r.Body, path: r.Path, query: r.Query}
	p.settings, p.mask, p.hidden = c.Settings, s.mask, s.hidden
	at, err := s.reach.of(c.Tool.Operation)
	if err != nil {
		return p, param.Refuse("%s", err)
	}
	p.base = at.RawQuery
	if p.URL, err = param.Join(at.URL, p.path, p.query); err != nil {
		return nil, err
	}
	p.guard = s.reach.guard(at)
	if err := s.reach.withholds(p, c, at, s.forward); err != nil {
		return p, err
	}
	if s.reach.trusted.has(p.URL) {
		s.equip(p, c)
		p.trace = c.Trace
	}
	for _, u := range p.uses {
		if u.refused != "" && !slices.Contains(p.forwarded, u.name) {
			return p, param.Refuse("was not sent: %s", u.refused)
		}
	}
	return p, nil
}

// withhold takes the headers away that are not for arguments. Some servers take '_' for
// '-'.
func (s *Source) withhold(h http.Header) {
	for name := range h {
		if slices.ContainsFunc(s.o.Withheld, func(one string) bool { return strings.EqualFold(dashed(one), dashed(name)) }) {
			delete(h, name)
		}
	}
}

func dashed(name string) string { return strings.ReplaceAll(name, "_", "-") }

// equip adds what only trusted servers get.
func (s *Source) equip(p *Plan, c *Call) {
	for name, value := range s.o.Headers {
		name = http.CanonicalHeaderKey(name)
		p.Header[name] = []string{value}
		p.fixed = append(p.fixed, name)
	}
	for name, to := range s.forward {
		if values := c.Header[name]; len(values) > 0 {
			p.Header[to] = slices.Clone(values)
			p.forwarded = append(p.forwarded, to)
		}
	}
	p.uses, p.subject = s.reach.keys.of(p.op), c.Subject
}

// once logs something about a tool, the first time.
func (s *Source) once(tool, what string, err error) {
	if _, said := s.misfit.LoadOrStore(tool+"\n"+what, true); !said {
		s.log.Warn(what, "tool", tool, "err", err)
	}
}

package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/overlay"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Options are settings that do not belong to the API itself.
type Options struct {
	Log *slog.Logger // nil means slog.Default()
	// Timeout bounds a call with all its attempts; 30 s if 0.
	Timeout time.Duration
	// MaxTimeout bounds the timeouts of tools; no limit if 0.
	MaxTimeout time.Duration
	// Breaker says when a failing host gets no more requests.
	Breaker breaker.Options
	// Forward are the callers' headers to pass on, as wire.Options.Forward.
	Forward []string
	// Identity are those of Forward that identify the caller. No argument sets them.
	Identity []string
	// Prefix is the length of the prefix that tool names will get, in bytes. Names are cut so that
	// both together have at most 64 bytes.
	Prefix int
	// Shows reports whether clients may see the tool of that name. If it is nil, they may see all. Hidden tools take no
	// memory, and do not count for ModeAuto.
	Shows func(name string) bool
	// Reads reports whether clients may read the resource at that URI. If it is nil, they may read
	// all. Only this package can apply it to files in arguments.
	Reads func(uri string) bool
	// MaxMessage bounds a result, in bytes; 16 MiB if 0.
	MaxMessage int
}

// edition is the API as one reading found it: the tools, and the source that calls them. A call uses
// the same edition until its end.
type edition struct {
	*catalog
	source     *wire.Source
	texts      []string // paths and URLs of all texts that were read
	operations int      // of the document
	saved      bool     // the document was read from KeepDir
	nowhere    error    // why no call can be made: the API has no server; nil otherwise
	home       string   // the origin of the API's own server; empty if there is none
	tokens     []string // origins of the token endpoints
	untrusted  []string // origins that get no credentials; see wire.Reach

	mu    sync.Mutex // guards users
	users int        // adapters that use the edition
}

// use is one adapter's use of an edition, which several adapters may share.
type use struct {
	*edition
	calls sync.WaitGroup // calls in flight; Add is called with Adapter.mu held, while the use is current
}

// left ends one adapter's use. It reports whether that was the last use: then the caller closes the
// source.
func (e *edition) left() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users--
	return e.users == 0
}

// material is the result of one reading, from which an edition is made.
type material struct {
	doc       *openapi.Document // nil without a document
	reach     *wire.Reach       // nil if the settings are wrong
	tools     []*toolset.Tool
	resources []*resource
	all       []*toolset.Tool // including the tools that clients do not see
	names     []string        // of the tools among which Options.Shows chooses
	texts     []string        // paths and URLs of all texts that were read
	warnings  []openapi.Warning
	lost      []*openapi.Operation // exposed but unusable operations
	faults    toolset.Faults       // of the configuration
}

// read reads the document and, if brought is nil, the catalogue, and returns the tools for the server
// of that name.
func (c *Config) read(ctx context.Context, name string, o *Options, fetch openapi.Fetcher, brought []byte) (*material, error) {
	m := &material{}
	var imported []*openapi.Tool
	var rules openapi.Rules
	if c.OpenAPI != "" {
		overlays, err := c.readOverlays()
		if err != nil {
			return nil, err
		}
		doc, err := openapi.Load(ctx, openapi.Source{
			Location: c.OpenAPI,
			Data:     c.Document,
			Fetcher:  fetch,
			Overlays: overlays,
			Folders:  c.folders(),
		})
		if err != nil {
			return nil, &documentError{err}
		}
		if rules, err = openapi.ParseRules(c.Expose); err != nil {
			return nil, fmt.Errorf("expose: %w", err)
		}
		m.doc, m.texts, m.lost = doc, append(slices.Clone(doc.Files), c.Overlays...), doc.LostOf(rules)
		imported, m.warnings = openapi.Tools(doc, openapi.Options{
			Rename:       func(op *openapi.Operation, name string) string { return toolset.Rename(c.Rules, op, name) },
			NameLimit:    64 - o.Prefix,
			Expose:       rules,
			FlattenBody:  c.FlattenBody,
			StrictOutput: c.StrictOutput,
			Resources:    c.hasResources(),
			Withheld:     o.Identity,
		})
		m.warnings = append(slices.Clone(doc.Warnings), m.warnings...)
	}
	if options, err := c.wireOptions(m, name, o); err == nil {
		m.reach, _ = wire.NewReach(options) // newSource reports the error
	}
	m.tools, m.faults = c.combine(m.doc, imported, m.reach)
	m.dropUnserved()
	if m.doc != nil {
		for _, f := range toolset.ExposeFaults(m.doc, rules) {
			if address.IsHTTP(c.OpenAPI) { // the owner of the document may remove operations at any time
				m.warnings = append(m.warnings, openapi.Warning{File: filepath.Base(c.OpenAPI), Text: f.String()})
			} else {
				m.faults = append(m.faults, f)
			}
		}
	}
	if err := c.addPublished(ctx, m, o, fetch, brought); err != nil {
		return nil, err
	}
	m.all = slices.Clone(m.tools)
	if text := c.wanted(m, o); text != "" {
		m.warnings = append(m.warnings, openapi.Warning{File: filepath.Base(c.OpenAPI), Text: text})
	}
	c.warnIdle(m)
	c.setMaskingAndCache(m.all, o)
	c.resources(m, name)
	if c.ReadOnly {
		m.tools = slices.DeleteFunc(m.tools, func(t *toolset.Tool) bool { return !t.Reads() })
	}
	for _, t := range m.tools {
		m.names = append(m.names, t.Name)
	}
	if o.Shows != nil {
		m.tools = slices.DeleteFunc(m.tools, func(t *toolset.Tool) bool { return !o.Shows(t.Name) })
	}
	return m, nil
}

// empty reports whether the document has no operations. Lost operations count, since they may become
// usable.
func (m *material) empty() bool { return m.doc != nil && len(m.doc.Operations)+len(m.doc.Lost) == 0 }

// dropUnserved drops operations whose own servers have no address.
func (m *material) dropUnserved() {
	if m.reach == nil {
		return
	}
	m.tools = slices.DeleteFunc(m.tools, func(t *toolset.Tool) bool {
		op := t.Operation
		err := m.reach.Unserved(op)
		if err != nil {
			m.lost = append(m.lost, op)
			m.warnings = append(m.warnings, openapi.Warning{
				File: op.File,
				Line: op.Line,
				Text: fmt.Sprintf("%s is left out: %v", op.Key(), err),
			})
		}
		return err != nil
	})
}

// wanted returns a warning that operations need credentials, if nothing in the configuration could be
// a credential.
func (c *Config) wanted(m *material, o *Options) string {
	if m.reach == nil || m.doc == nil || c.Auth.Default != nil || len(c.Auth.Schemes)+len(c.Headers)+len(o.Forward) > 0 || c.CertFile != "" {
		return ""
	}
	way, n := "", 0
	for _, t := range m.all {
		if one := m.reach.Wanted(t.Operation); one != "" {
			way = cmp.Or(way, one)
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d operations need credentials, and none are set: add %s", n, len(m.all), way)
}

// warnIdle warns of configured credentials that no operation gets. Without a document, every tool
// gets one: see Auth.secure.
func (c *Config) warnIdle(m *material) {
	if m.reach == nil || m.doc == nil || len(m.all) == 0 {
		return
	}
	var ops []*openapi.Operation
	for _, t := range m.all {
		ops = append(ops, t.Operation)
	}
	for _, name := range m.reach.Idle(ops) {
		text := "auth: no operation gets the credential: none needs one"
		if name != "" {
			text = fmt.Sprintf("auth: %s: no operation gets the credential: none needs that scheme, or each gets another one first", name)
		}
		m.warnings = append(m.warnings, openapi.Warning{File: filepath.Base(c.OpenAPI), Text: text})
	}
	c.warnVariables(m, ops)
}

// warnVariables warns of configured variables that are in no address of the API.
func (c *Config) warnVariables(m *material, ops []*openapi.Operation) {
	var used strings.Builder // the addresses; their variables need not be declared
	note := func(servers []openapi.Server) {
		for _, s := range servers[:min(1, len(servers))] { // only the first server gets calls
			used.WriteString(s.URL)
		}
	}
	note(m.doc.Servers)
	for _, op := range ops {
		if op != nil {
			note(op.Servers)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Variables)) {
		text := "variables: " + name + ": the addresses of the document have no such variable"
		switch {
		case c.BaseURL != "":
			text = "variables: " + name + " has no effect: base_url says where the API is"
		case strings.Contains(used.String(), "{"+name+"}"):
			continue
		}
		m.warnings = append(m.warnings, openapi.Warning{File: filepath.Base(c.OpenAPI), Text: text})
	}
}

// documentError is the error of an unusable document.
type documentError struct{ error }

func (d *documentError) Unwrap() error { return d.error }

// readOverlays reads the overlays for the document.
func (c *Config) readOverlays() ([]*overlay.Overlay, error) {
	var all []*overlay.Overlay
	for _, path := range c.Overlays {
		data, err := files.Read(path, overlay.MaxBytes+1)
		if err != nil {
			return nil, fmt.Errorf("overlays: %s: %w", filepath.Base(path), errors.Unwrap(err))
		}
		o, err := overlay.Parse(filepath.Base(path), data)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// catalog returns the catalog of the material, with the server's info and instructions.
func (c *Config) catalog(m *material, name string) *catalog {
	if c.Pick {
		for _, t := range m.tools {
			t.OfferPick()
		}
	}
	title, version := name, "1"
	var about []string
	if m.doc != nil {
		if m.doc.Version != "" {
			version = m.doc.Version
		}
		title = cmp.Or(m.doc.Title, title)
		if text := strings.TrimSpace(m.doc.Description); text != "" {
			about = append(about, sanitize.Short(text, maxAbout))
		}
	}
	out := newCatalog(m.tools, c.Mode)
	out.listResources(m.resources)
	out.about = strings.Join(about, "\n\n")
	out.info = gjson.AppendJSONString([]byte(`{"name":`), name)
	if title != name {
		out.info = gjson.AppendJSONString(append(out.info, `,"title":`...), title)
	}
	out.info = append(gjson.AppendJSONString(append(out.info, `,"version":`...), version), '}')
	return out
}

// maxAbout bounds the part of a document's description that becomes instructions, in characters.
const maxAbout = 2000

// newSource returns the source that calls the API. schemas may be nil.
func newSource(c *Config, m *material, name string, o *Options, schemas *validate.Cache) (*wire.Source, error) {
	options, err := c.wireOptions(m, name, o)
	if err != nil {
		return nil, err
	}
	options.Schemas, options.Secrets = schemas, append(c.secrets(m.all), c.Secrets...)
	return wire.New(*options)
}

// wireOptions returns the options of the source, without those that depend on the tools.
func (c *Config) wireOptions(m *material, name string, o *Options) (*wire.Options, error) {
	auth, err := c.Auth.forDocument(m.doc)
	if err != nil {
		return nil, err
	}
	most := o.maxMessage()
	// In a result, a binary answer takes four bytes for three, and a text may occur again as structured content.
	body := min(cmp.Or(int(c.Limits.Body), 8<<20), most*2/3)
	answer := min(c.maxAnswer(), most/4)
	return &wire.Options{
		Name:        name,
		Document:    m.doc,
		BaseURL:     c.BaseURL,
		Variables:   c.Variables,
		HTTP:        c.http(),
		Headers:     c.Headers,
		Credentials: auth.Schemes,
		Default:     auth.Default,
		Trusted:     c.origins(),
		Forward:     o.Forward,
		Withheld:    o.Identity,
		Timeout:     o.Timeout,
		MaxTimeout:  o.MaxTimeout,
		Retries:     toolset.Retries(c.Attempts),
		Rate:        c.Limits.Rate,
		Concurrent:  c.Limits.Concurrent,
		Breaker:     o.Breaker,
		CacheBytes:  c.cacheBytes(),
		MaxAnswer:   answer,
		MaxBody:     body,
		MaxFile:     int(c.Limits.File),
		Log:         o.Log,
	}, nil
}

// maxMessage returns how many bytes a result may have.
func (o *Options) maxMessage() int { return cmp.Or(o.MaxMessage, 16<<20) }

// maxAnswer returns how many bytes of text a result may have, unless its tool sets a limit.
func (c *Config) maxAnswer() int { return cmp.Or(int(c.Limits.Answer), 100<<10) }

// forDocument returns the credentials for a document. If Default has a Key without a place, the key is
// for the document's only apiKey scheme.
func (a Auth) forDocument(doc *openapi.Document) (Auth, error) {
	c := a.Default
	if c == nil || c.Key == "" || c.Header != "" || c.Query != "" || c.Cookie != "" {
		return a, nil
	}
	var keys []string
	if doc != nil {
		for _, s := range doc.Schemes {
			if s.Type == "apiKey" {
				keys = append(keys, s.Name)
			}
		}
	}
	switch len(keys) {
	case 0:
		return a, errors.New("auth: the value has no place: set header: NAME, query: NAME or cookie: NAME")
	case 1:
		out := Auth{Schemes: maps.Clone(a.Schemes)}
		if out.Schemes == nil {
			out.Schemes = map[string]wire.Credential{}
		}
		out.Schemes[keys[0]] = *c
		return out, nil
	}
	return a, fmt.Errorf("auth: the document has several API keys (%s): name the one that the value is for, such as auth: {%s: {value: …}}", strings.Join(keys, ", "), keys[0])
}

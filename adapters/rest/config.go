package rest

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/document"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/internal/address"
)

// Config describes one API. It has at least one of OpenAPI, Tools and Catalog.
type Config struct {
	// OpenAPI is the path or URL of the API's document.
	OpenAPI string `yaml:"openapi"`
	// OpenAPIHeaders are sent with requests for documents to the origin of OpenAPI, if that is a URL.
	// No other origin and no call gets them.
	OpenAPIHeaders map[string]string `yaml:"openapi_headers" names:"header"`
	// Document is the document itself, if the configuration contains it. OpenAPI is then its path,
	// from which references resolve.
	Document []byte `yaml:"-"`
	// Overlays are the paths of OpenAPI Overlays, which change the document before it is read, in
	// order.
	Overlays []string `yaml:"overlays"`
	// KeepDir is a folder in which the bridge saves the last good document of a URL. If the URL cannot
	// be read, the bridge starts with the saved document. Empty means that nothing is saved.
	KeepDir string `yaml:"keep_dir"`
	// Catalog has tools that another program publishes while the bridge runs.
	Catalog Catalog `yaml:"catalog"`
	// BaseURL is the address of the API. Empty means the document's.
	BaseURL string `yaml:"base_url"`
	// Variables are values for variables in the document's server addresses.
	Variables map[string]string `yaml:"variables"`
	// Auth has the credentials for the API.
	Auth Auth `yaml:"auth"`
	// Args change the parameters with their names in all operations of the document. Rules and Tools
	// win over Args.
	Args []toolset.Arg `yaml:"args"`
	// Rules change the operations of the document that they match. Tools win over Rules.
	Rules []toolset.Rule `yaml:"rules"`
	// Headers are sent with every request.
	Headers map[string]string `yaml:"headers" names:"header"`
	// Secrets are further values to mask in everything that clients see. For a configuration file,
	// they are the values from the environment in headers, queries, arguments and base_url.
	Secrets []string `yaml:"-"`
	// Remarks logs every fault of the document as a warning, for a bridge that serves only this
	// document. Otherwise, faults are logged at level debug.
	Remarks bool `yaml:"-"`
	// Trusted are origins and folders. An origin may get credentials and headers, and the document
	// may refer to it. A document in a file may refer to the files in a folder.
	Trusted []string `yaml:"trusted"`
	// Expose chooses operations; see openapi.ParseRules. Empty means all.
	Expose []string `yaml:"expose"`
	// ReadOnly leaves out operations that may change something.
	ReadOnly bool `yaml:"read_only"`
	// Mode is ModeAuto, ModeTools or ModeSearch. Empty means ModeAuto.
	Mode string `yaml:"mode" default:"auto" one_of:"auto tools search"`
	// FlattenBody makes members of bodies arguments of their own.
	FlattenBody bool `yaml:"flatten_body"`
	// StrictOutput keeps output schemas as the document has them.
	StrictOutput bool `yaml:"strict_output"`
	// Pick gives tools an argument with which models choose parts of answers.
	Pick bool `yaml:"pick"`
	// Limits bound requests and answers.
	Limits Limits `yaml:"limits"`
	// Attempts bounds how often a repeatable request is sent. 0 means 3.
	Attempts int `yaml:"attempts" default:"3" min:"1" max:"10"`
	// Cache is the size of the cache for answers to GET, in bytes. If it is 0, only answers of tools
	// with a cache setting are cached.
	Cache Bytes `yaml:"cache" min:"0B"`
	// Refresh is the pause between checks of the document for changes. 0 means 2 s for files and 5 min for
	// URLs.
	Refresh time.Duration `yaml:"refresh" min:"1s" usually:"2s for files, 5m for URLs"`
	// Tools change the document's tools, and add others.
	Tools []toolset.Entry `yaml:"tools"`
	// CAFile names a PEM file of authorities that may sign the API's certificate, besides those that
	// the system trusts.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are the bridge's PEM certificate and key for the API; both or neither.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// Proxy is the URL of a proxy (http, https or socks5), or "none". Empty means HTTP_PROXY,
	// HTTPS_PROXY and NO_PROXY.
	Proxy string `yaml:"proxy"`
	// IdleTimeout is how long an unused connection stays open. 0 means 4 s.
	IdleTimeout time.Duration `yaml:"idle_timeout" default:"4s"`
}

// Auth has the credentials with which the bridge authenticates to an API.
type Auth struct {
	// Default is for the operations that get no credential of Schemes, unless the document says that
	// they need none. It may be nil.
	Default *wire.Credential
	// Schemes are keyed by the names of the document's security schemes.
	Schemes map[string]wire.Credential
}

// Exchanges reports whether callers' tokens are exchanged for tokens of the API.
func (a *Auth) Exchanges() bool {
	for _, one := range a.Schemes {
		if one.Exchange != "" {
			return true
		}
	}
	return a.Default != nil && a.Default.Exchange != ""
}

// These are the values of Config.Mode.
const (
	ModeAuto   = tools.ModeAuto   // ModeTools, unless the list is longer than 64 KiB without output schemas
	ModeTools  = tools.ModeTools  // all tools are listed
	ModeSearch = tools.ModeSearch // tools are found and not listed, as with tools_mode: search of the server
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

// Sends reports whether Headers or Auth set a header of that name, or of a name that servers may take
// for the same.
func (c *Config) Sends(header string) bool {
	for name := range c.Headers {
		if openapi.SameHeader(name, header) {
			return true
		}
	}
	for _, one := range c.Auth.Schemes {
		if openapi.SameHeader(one.Header, header) {
			return true
		}
	}
	return c.Auth.Default != nil && openapi.SameHeader(c.Auth.Default.Header, header)
}

// Validate returns the faults in the settings, apart from those of Catalog and those by the bounds in tags, which
// package config checks. It reads no file and makes no connection. The error contains no values that may be secrets.
func (c *Config) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.OpenAPI == "" && !c.Catalog.exists() && !slices.ContainsFunc(c.Tools, func(e toolset.Entry) bool { return e.Request != "" }) {
		add("openapi is missing: set the API's document, a file or a URL; or add tools with a request under tools, or set a catalog")
	}
	if address.IsHTTP(c.OpenAPI) {
		if u, err := url.Parse(c.OpenAPI); err != nil || u.Host == "" || u.User != nil {
			add("openapi must be a file or a URL, such as https://api.example.com/openapi.json, without a password: openapi_headers is for credentials of the document")
		}
	}
	if c.OpenAPI == "" && c.BaseURL == "" {
		add("base_url is missing: set the address of the API, such as https://api.example.com/v1")
	}
	if c.BaseURL != "" && !isBase(c.BaseURL) {
		add("base_url must be a URL such as https://api.example.com/v1, without a password")
	}
	if len(c.Overlays) > 0 && c.OpenAPI == "" {
		add("overlays is of no use without openapi: it changes a document")
	}
	for i, o := range c.Overlays {
		if o == "" || address.IsHTTP(o) {
			add("overlays: item %d: must be a file, since only the operator may change the document", i+1)
		}
	}
	if c.KeepDir != "" && !address.IsHTTP(c.OpenAPI) {
		add("keep_dir is of no use without a URL in openapi: it saves documents that may be unreachable later")
	}
	for i, t := range c.Trusted {
		switch u, err := url.Parse(t); {
		case isFolder(t) && (c.OpenAPI == "" || address.IsHTTP(c.OpenAPI)):
			add("trusted: item %d: a folder is of no use without a document in a file: only that may refer to files", i+1)
		case !isFolder(t) && (!isBase(t) || err != nil || t != u.Scheme+"://"+u.Host):
			add("trusted: item %d: must be an origin such as https://uploads.example.com, or a folder such as ../schemas", i+1)
		}
	}
	if len(c.OpenAPIHeaders) > 0 && !address.IsHTTP(c.OpenAPI) {
		add("openapi_headers is of no use without a URL in openapi: the headers are sent where the document is read")
	}
	for _, fault := range headerFaults(c.OpenAPIHeaders) {
		add("openapi_%s", fault)
	}
	for _, fault := range headerFaults(c.Headers) {
		add("%s", fault)
	}
	if len(c.Args) > 0 && c.OpenAPI == "" {
		add("args is of no use without openapi: it is about the parameters of a document; tools with a request have args of their own")
	} else {
		for _, fault := range toolset.ArgFaults(c.Args) {
			add("%s", fault)
		}
	}
	if len(c.Rules) > 0 && c.OpenAPI == "" {
		add("rules is of no use without openapi: it is about the operations of a document")
	}
	for _, f := range toolset.RuleFaults(c.Rules) {
		add("%s", f)
	}
	for i, rule := range c.Expose {
		if _, err := openapi.ParseRules([]string{rule}); err != nil {
			add("expose: item %d: %w", i+1, err)
		}
	}
	if len(c.Expose) > 0 && c.OpenAPI == "" {
		add("expose is of no use without openapi: it chooses from a document")
	}
	if r := c.Limits.Rate; r.PerSecond < 0 || r.Burst < 0 {
		add("limits: rate must not be negative")
	}
	if names := c.signsIn(); len(names) > 0 && c.BaseURL == "" {
		add("auth: login needs base_url: the address of the API, for which a person signs in")
	} else if len(names) > 1 {
		add("auth: login is set for several schemes: set it once, since a person signs in to the API once")
	}
	own := c.http()
	own.URL = "http://localhost"
	if err := own.Validate(); err != nil {
		errs = append(errs, err)
	}
	for i := range c.Tools {
		for _, f := range c.Tools[i].Check() {
			add("tools: %s%s", f.Key, f.Text)
		}
	}
	return errors.Join(errs...)
}

// signsIn returns the credentials for which a person signs in.
func (c *Config) signsIn() (all []*wire.Credential) {
	for _, name := range slices.Sorted(maps.Keys(c.Auth.Schemes)) {
		if one := c.Auth.Schemes[name]; one.Login {
			all = append(all, &one)
		}
	}
	if d := c.Auth.Default; d != nil && d.Login {
		all = append(all, d)
	}
	return all
}

// SignIn returns the settings with which a person signs in to the API, or nil if nobody has to.
func (c *Config) SignIn() *remote.Config {
	if all := c.signsIn(); len(all) > 0 {
		return all[0].SignIn(c.BaseURL, c.http())
	}
	return nil
}

// isBase reports whether s can be the address of an API.
func isBase(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "http" || u.Scheme == "https")
}

// isFolder reports whether an item of Trusted is a folder.
func isFolder(item string) bool { return strings.HasPrefix(item, ".") || filepath.IsAbs(item) }

func (c *Config) origins() []string { return slices.DeleteFunc(slices.Clone(c.Trusted), isFolder) }

func (c *Config) folders() []string {
	return slices.DeleteFunc(slices.Clone(c.Trusted), func(item string) bool { return !isFolder(item) })
}

// http returns the settings of connections, without a URL and headers.
func (c *Config) http() remote.Config {
	return remote.Config{
		CAFile:      c.CAFile,
		CertFile:    c.CertFile,
		KeyFile:     c.KeyFile,
		Proxy:       c.Proxy,
		IdleTimeout: c.IdleTimeout,
	}
}

// documents returns the options for reading the API's texts.
func (c *Config) documents(log *slog.Logger) document.Options {
	return document.Options{
		Location:       c.OpenAPI,
		Data:           c.Document,
		Headers:        c.OpenAPIHeaders,
		Overlays:       c.Overlays,
		Origins:        c.origins(),
		Folders:        c.folders(),
		KeepDir:        c.KeepDir,
		Catalog:        c.Catalog.location(),
		CatalogHeaders: c.Catalog.Headers,
		HTTP:           c.http(),
		Log:            log,
	}
}

// settings returns the settings of the API's tools, for the server of that name.
func (c *Config) settings(name string, o *Options) (*tools.Settings, error) {
	return tools.New(tools.Settings{
		API:            c.wire(name, o),
		Location:       c.OpenAPI,
		Args:           c.Args,
		Rules:          c.Rules,
		Entries:        c.Tools,
		Expose:         c.Expose,
		ReadOnly:       c.ReadOnly,
		Mode:           c.Mode,
		FlattenBody:    c.FlattenBody,
		StrictOutput:   c.StrictOutput,
		Pick:           c.Pick,
		Cache:          int(c.Cache),
		RetryPublished: c.Catalog.Retry,
		Secrets:        c.Secrets,
		Prefix:         o.Prefix,
		Shows:          o.Shows,
		MaxMessage:     o.maxMessage(),
	})
}

// wire returns the options for calling the API, without those that depend on its document.
func (c *Config) wire(name string, o *Options) wire.Options {
	most := Bytes(o.maxMessage())
	w := wire.Options{
		Name:        name,
		BaseURL:     c.BaseURL,
		Variables:   c.Variables,
		HTTP:        c.http(),
		Headers:     c.Headers,
		Credentials: c.Auth.Schemes,
		Default:     c.Auth.Default,
		Trusted:     c.origins(),
		Forward:     o.Forward,
		Withheld:    o.Identity,
		Timeout:     o.Timeout,
		MaxTimeout:  o.MaxTimeout,
		Attempts:    c.Attempts,
		Limits:      c.Limits,
		Breaker:     o.Breaker,
		Log:         o.Log,
	}
	w.Fill()
	w.Limits.Answer = min(w.Limits.Answer, most/4)
	// In a result, a binary answer takes four bytes for three, and a text may occur again as structured content.
	w.Limits.Body = min(w.Limits.Body, most*2/3)
	return w
}

// maxMessage returns how many bytes a result may have.
func (o *Options) maxMessage() int { return cmp.Or(o.MaxMessage, 16<<20) }

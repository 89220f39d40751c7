package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	publication "github.com/mcp-bridge/bridge/adapters/rest/internal/catalog"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/address"
)

// Catalog names the source of a catalogue, whose tools change while the bridge runs. Package catalog
// describes its form. The zero value means no catalogue.
type Catalog struct {
	// File or URL is the source of the catalogue. At most one of them is set.
	File string `yaml:"file"`
	URL  string `yaml:"url"`
	// Headers are sent with requests for URL only.
	Headers map[string]string `yaml:"headers" names:"header"`
	// Webhook accepts requests with Secret: to read everything again or, without File and URL, with a
	// new catalogue.
	Webhook bool   `yaml:"webhook"`
	Secret  string `yaml:"secret"`
	// Retry allows the bridge to repeat requests of tools that the catalogue declares harmless, even
	// with methods such as POST.
	Retry bool `yaml:"retry"`
}

// minSecret is the shortest Secret of a webhook, in bytes.
const minSecret = 16

func (c *Catalog) exists() bool { return c.File != "" || c.URL != "" || c.Webhook }

// location returns the source of the catalogue; empty if a webhook sends the catalogue.
func (c *Catalog) location() string {
	if c.URL != "" {
		return c.URL
	}
	return c.File
}

// faults returns the faults in the settings.
func (c *Catalog) faults() []string {
	var all []string
	add := func(text string) { all = append(all, "catalog: "+text) }
	if u, err := url.Parse(c.URL); c.URL != "" && (!address.IsHTTP(c.URL) || err != nil || u.Host == "" || u.User != nil) {
		add("url must be a URL such as https://flows.example.com/tools.json, without a password")
	}
	if c.File != "" && c.URL != "" {
		add("file and url are both set: remove one")
	}
	if len(c.Headers) > 0 && c.URL == "" {
		add("headers are of no use without url")
	}
	for _, fault := range headerFaults(c.Headers) {
		add(fault)
	}
	if c.Retry && !c.exists() {
		add("retry is of no use without file, url or webhook")
	}
	switch {
	case c.Webhook && len(c.Secret) < minSecret:
		add(fmt.Sprintf("secret must have at least %d characters: whoever knows it can change the tools", minSecret))
	case c.Secret != "" && !c.Webhook:
		add("secret is of no use without webhook: true")
	}
	return all
}

// missing reports whether the file does not exist. Its writer may start after the bridge.
func (c *Catalog) missing() bool {
	_, err := os.Stat(c.File)
	return c.File != "" && errors.Is(err, fs.ErrNotExist)
}

// fetch reads the catalogue. Without a location, it returns an empty one.
func (c *Catalog) fetch(ctx context.Context, fetch openapi.Fetcher) ([]byte, error) {
	switch {
	case c.URL != "":
		data, err := fetch.Fetch(ctx, c.URL)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", address.Shown(c.URL), err)
		}
		return data, nil
	case c.File == "":
		return []byte("[]"), nil
	}
	f, err := os.Open(c.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, errors.New(c.File + " is not a file")
	}
	return io.ReadAll(io.LimitReader(f, publication.MaxBytes+1)) // Parse refuses a larger one
}

// addPublished adds the tools of the catalogue to the material. brought, unless nil, is the catalogue.
func (c *Config) addPublished(ctx context.Context, m *material, o *Options, fetch openapi.Fetcher, brought []byte) error {
	if !c.Catalog.exists() {
		return nil
	}
	if where := c.Catalog.location(); where != "" {
		m.texts = append(m.texts, where)
	}
	data := brought
	if data == nil {
		var err error
		if data, err = c.Catalog.fetch(ctx, fetch); err != nil {
			return fmt.Errorf("catalog: %w", err)
		}
	}
	err := c.published(m, o, data)
	if err != nil && brought != nil { // Renew returns this to the sender of the catalogue
		return &CatalogError{err}
	}
	return err
}

// publishedFile stands for the catalogue in warnings.
const publishedFile = "catalogue"

// published adds the tools of a catalogue to the material. It leaves out unusable ones, with a
// warning for each.
func (c *Config) published(m *material, o *Options, data []byte) error {
	tools, warnings, err := publication.Parse(data)
	if err != nil {
		return err
	}
	warn := func(text string) {
		m.warnings = append(m.warnings, openapi.Warning{File: publishedFile, Text: text})
	}
	for _, w := range warnings {
		warn(w)
	}
	auth, err := c.Auth.forDocument(m.doc)
	if err != nil {
		auth = c.Auth // newSource reports err
	}
	names := map[string]bool{}
	for _, t := range m.tools {
		names[t.Name] = true
	}
	used, secrets := 0, map[string]bool{}
	for i := range tools {
		p := &tools[i]
		e := &toolset.Entry{
			Key:     p.Name,
			Title:   p.Title,
			About:   p.Description,
			Body:    p.Body,
			Headers: p.Headers,
			Result:  p.Result,
			Error:   p.Error,
			ErrorIf: p.ErrorIf,
		}
		bounded := c.bound(e, p, o)
		t, err := c.publish(e, p)
		switch {
		case err != nil:
			warn(fmt.Sprintf("tool %q: %s", p.Name, err))
		case names[t.Name]:
			warn(fmt.Sprintf("tool %q: another tool already has the name", p.Name))
		case !e.Hides(secrets):
			warn(fmt.Sprintf("tool %q: the catalogue has more than %d secrets among its headers and queries: set them as headers or auth of the configuration", p.Name, toolset.MaxPublishedSecrets))
		default:
			auth.secure(t.Operation)
			m.tools = append(m.tools, t)
			used++
			for _, text := range bounded {
				warn(fmt.Sprintf("tool %q: %s", p.Name, text))
			}
		}
	}
	if len(tools) > 0 && used == 0 {
		return fmt.Errorf("the catalogue has no usable tool: %s", m.warnings[len(m.warnings)-1].Text)
	}
	return nil
}

// publish returns the tool of a catalogue's entry e, as if the configuration had the entry. The input
// schema stays as it is in p.
func (c *Config) publish(e *toolset.Entry, p *publication.Tool) (*toolset.Tool, error) {
	var err error
	if e.Request, err = c.below(p.Request); err != nil {
		return nil, err
	}
	for _, path := range []string{e.Result, e.Error, e.ErrorIf} {
		if what := wire.Growing(path); what != "" {
			return nil, fmt.Errorf("the path %.60q has the modifier @%s, which a catalogue cannot use", path, what)
		}
	}
	var required []string
	for _, name := range gjson.GetBytes(p.InputSchema, "required").Array() {
		required = append(required, name.Str)
	}
	gjson.GetBytes(p.InputSchema, "properties").ForEach(func(name, schema gjson.Result) bool {
		e.Args = append(e.Args, toolset.Arg{
			Name:     name.Str,
			Optional: !slices.Contains(required, name.Str),
			Schema:   []byte(schema.Raw),
		})
		return true
	})
	t, faults := e.Build()
	if len(faults) > 0 {
		return nil, errors.New(strings.TrimPrefix(faults[0].Key, p.Name+": ") + faults[0].Text)
	}
	t.Settings.Bounded = true
	t.Entry, t.Published = nil, e // the entry is not in the configuration
	t.InputSchema = p.InputSchema
	for name, into := range map[string]*bool{
		"readOnlyHint": &t.Annotations.ReadOnly, "destructiveHint": &t.Annotations.Destructive,
		"idempotentHint": &t.Annotations.Idempotent, "openWorldHint": &t.Annotations.OpenWorld,
	} {
		if hint, given := p.Annotations[name]; given {
			*into = hint
		}
	}
	if open := gjson.GetBytes(p.InputSchema, "additionalProperties"); open.Exists() && open.Type != gjson.False && e.Body == nil {
		t.OpenTo(e)
	}
	return t, nil
}

// below returns the request with a path in place of a whole URL. It refuses a URL that is not below
// BaseURL.
func (c *Config) below(request string) (string, error) {
	method, target, _ := strings.Cut(strings.TrimSpace(request), " ")
	target = strings.TrimSpace(target)
	if !address.IsHTTP(target) {
		return request, climbs(target)
	}
	base := strings.TrimSuffix(c.BaseURL, "/")
	path, ok := strings.CutPrefix(target, base)
	if base == "" || !ok || path != "" && !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "?") && !strings.HasPrefix(path, "{?") {
		return "", errors.New("its request is not below base_url")
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return method + " " + path, climbs(path)
}

// climbs returns an error for a path with a part . or .., encoded or not.
func climbs(path string) error {
	path, _, _ = strings.Cut(path, "?")
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	for _, part := range strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == "." || part == ".." {
			return errors.New("its request has . or .. as a part of its path")
		}
	}
	return nil
}

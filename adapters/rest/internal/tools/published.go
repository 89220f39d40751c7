package tools

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	publication "github.com/mcp-bridge/bridge/adapters/rest/internal/catalog"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/address"
)

// PublishedFile stands for the catalogue in warnings.
const PublishedFile = "catalogue"

// publish adds the tools of a catalogue to m. It leaves out unusable ones, with a warning for each.
func (s *Settings) publish(m *Made, text []byte) error {
	if text == nil {
		return nil
	}
	tools, warnings, err := publication.Parse(text)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		m.warn(PublishedFile, w)
	}
	names := map[string]bool{}
	for _, t := range m.tools {
		names[t.Name] = true
	}
	used, secrets := 0, map[string]bool{}
	for i := range tools {
		p := &tools[i]
		bounded := s.bound(p)
		t, err := s.published(p)
		switch {
		case err != nil:
			m.warn(PublishedFile, fmt.Sprintf("tool %q: %s", p.Key, err))
		case names[t.Name]:
			m.warn(PublishedFile, fmt.Sprintf("tool %q: another tool already has the name", p.Key))
		case !p.Hides(secrets):
			m.warn(PublishedFile, fmt.Sprintf("tool %q: the catalogue has more than %d secrets among its headers and queries: set them as headers or auth of the configuration", p.Key, toolset.MaxPublishedSecrets))
		default:
			m.secure(t.Operation)
			m.tools = append(m.tools, t)
			used++
			for _, text := range bounded {
				m.warn(PublishedFile, fmt.Sprintf("tool %q: %s", p.Key, text))
			}
		}
	}
	if len(tools) > 0 && used == 0 {
		return fmt.Errorf("the catalogue has no usable tool: %s", m.Warnings[len(m.Warnings)-1].Text)
	}
	return nil
}

// published returns the tool of a catalogue's entry, as if the configuration had the entry. The input
// schema stays as it is in p.
func (s *Settings) published(p *publication.Tool) (*toolset.Tool, error) {
	e := &p.Entry
	var err error
	if e.Request, err = s.below(e.Request); err != nil {
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
		return nil, errors.New(strings.TrimPrefix(faults[0].Key, p.Key+": ") + faults[0].Text)
	}
	t.Settings.Bounded = true
	t.Entry, t.Args, t.Published = nil, nil, e // the entry is not in the configuration
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
func (s *Settings) below(request string) (string, error) {
	method, target, _ := strings.Cut(strings.TrimSpace(request), " ")
	target = strings.TrimSpace(target)
	if !address.IsHTTP(target) {
		return request, climbs(target)
	}
	base := strings.TrimSuffix(s.API.BaseURL, "/")
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

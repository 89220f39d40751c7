package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/wire"
)

// maxPublishedSecrets bounds the secrets of a catalogue: each is looked for in all
// that clients are told.
const maxPublishedSecrets = 100

// secretHeader reports whether a header is probably a secret, by its name. An
// Idempotency-Key is none.
func secretHeader(name string) bool {
	return wire.Sensitive(name) && !strings.EqualFold(name, keyHeader)
}

// secretParameter reports whether a parameter of the query is probably a secret.
// Of these, author and keywords are none.
func secretParameter(name string) bool {
	name = strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
	return slices.Contains([]string{"key", "auth", "sig"}, name) || slices.ContainsFunc(
		[]string{"apikey", "accesskey", "authkey", "secretkey", "token", "secret", "password", "signature"},
		func(end string) bool { return strings.HasSuffix(name, end) })
}

// requestOf returns a request as clients are told it. hidden are parameters of its
// query that they are not told, whatever their names.
func requestOf(op *openapi.Operation, hidden ...string) string {
	return op.Method + " " + pathOf(op, hidden...)
}

// request returns the tool's.
func (t *tool) request() string { return requestOf(t.Operation, t.settings.MaskedQuery...) }

// pathOf returns the path and the query of a request. What the query has of
// secrets is masked, unless it is the document's.
func pathOf(op *openapi.Operation, hidden ...string) string {
	path, query, _ := strings.Cut(op.Path, "?")
	if query == "" || op.File != "" {
		return op.Path
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, valued := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil && valued && (secretParameter(plain) || slices.Contains(hidden, plain)) {
			pairs[i] = name + "=***"
		}
	}
	return path + "?" + strings.Join(pairs, "&")
}

// secrets returns what the headers and the query of an entry have of themselves
// that is probably a secret: the API's own headers and credentials are known as
// such.
func (t *Tool) secrets() []string {
	var all []string
	for name, text := range t.Headers {
		if secretHeader(name) {
			all = append(all, literals(text)...)
		}
	}
	t.inQuery(func(name, text string) {
		if secretParameter(name) {
			all = append(all, literals(text)...)
		}
	})
	slices.Sort(all)
	return slices.Compact(all)
}

// inQuery calls add with the names and the values, which are templates, of the
// entry's query.
func (t *Tool) inQuery(add func(name, text string)) {
	gjson.ParseBytes(t.Query).ForEach(func(name, v gjson.Result) bool {
		items := []gjson.Result{v}
		if v.IsArray() {
			items = v.Array()
		}
		for _, item := range items {
			add(name.String(), item.String())
		}
		return true
	})
	_, query, _ := strings.Cut(t.Request, "?")
	for one := range strings.SplitSeq(inQuery.ReplaceAllString(query, "&"), "&") {
		name, value, _ := strings.Cut(one, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		add(name, value)
		if plain, err := url.QueryUnescape(value); err == nil && plain != value {
			add(name, plain)
		}
	}
}

// literals returns what a template has beside its arguments; of Bearer TOKEN, the
// token too.
func literals(text string) []string {
	t, err := parseText(text, func(string) bool { return true })
	if err != nil {
		return nil
	}
	var all []string
	for _, p := range t.parts {
		if p.literal == "" {
			continue
		}
		all = append(all, p.literal)
		if _, token, ok := strings.Cut(p.literal, " "); ok {
			all = append(all, token)
		}
	}
	return all
}

// hides adds the secrets of a catalogue's entry to those of the others. It reports
// false when they would be too many.
func (t *Tool) hides(known map[string]bool) bool {
	own := slices.DeleteFunc(t.secrets(), func(s string) bool { return known[s] })
	if len(known)+len(own) > maxPublishedSecrets {
		return len(own) == 0
	}
	for _, s := range own {
		known[s] = true
	}
	return true
}

// masked returns the names of the entry's headers whose values nobody is shown.
func (t *Tool) masked() []string {
	var all []string
	for name := range t.Headers {
		if secretHeader(name) {
			all = append(all, http.CanonicalHeaderKey(name))
		}
	}
	return all
}

// maskedQuery returns the names of the parameters of the entry's query that have
// something of themselves which nobody is shown.
func (t *Tool) maskedQuery() []string {
	var all []string
	t.inQuery(func(name, text string) {
		if secretParameter(name) && len(literals(text)) > 0 {
			all = append(all, name)
		}
	})
	return all
}

// secretValues calls found with the parameters for which the configuration has a
// value, and the value, where that is probably a secret, by the parameter's name.
func (t *tool) secretValues(found func(p *openapi.Parameter, value string)) {
	own := t.shared.args
	if t.said != nil {
		own = slices.Concat(own, t.said.Args)
	}
	for i := range own {
		if own[i].Value == nil {
			continue
		}
		for _, a := range t.call.Arguments {
			if p := a.Parameter; a.Name == own[i].Name && p != nil && (p.In == openapi.InQuery && secretParameter(p.Name) || p.In != openapi.InQuery && secretHeader(p.Name)) {
				found(p, gjson.ParseBytes(own[i].Value).String())
			}
		}
	}
}

// conceal notes which headers and parameters of the query are not shown, beside
// those of the entry that have the name of a secret: those with a value that the
// configuration has from the environment, and values of arguments.
func (t *tool) conceal(c *Config) {
	holds := func(text string) bool {
		return slices.ContainsFunc(c.Secrets, func(secret string) bool { return strings.Contains(text, secret) })
	}
	if t.said != nil && len(c.Secrets) > 0 {
		for name, text := range t.said.Headers {
			if holds(text) {
				t.settings.Masked = append(t.settings.Masked, http.CanonicalHeaderKey(name))
			}
		}
		plain := t.request()
		t.said.inQuery(func(name, text string) {
			if holds(text) {
				t.settings.MaskedQuery = append(t.settings.MaskedQuery, name)
			}
		})
		if t.Description == plain { // it has none of its own
			t.Description = t.request()
		}
	}
	t.secretValues(func(p *openapi.Parameter, _ string) {
		if p.In == openapi.InHeader {
			t.settings.Masked = append(t.settings.Masked, http.CanonicalHeaderKey(p.Name))
		} else if p.In == openapi.InQuery {
			t.settings.MaskedQuery = append(t.settings.MaskedQuery, p.Name)
		}
	})
}

// secrets returns those of all entries: of the configuration, and of a catalogue.
func (c *Config) secrets(tools []*tool) []string {
	var all []string
	for i := range c.Tools {
		all = append(all, c.Tools[i].secrets()...)
	}
	for _, t := range tools {
		if t.published != nil {
			all = append(all, t.published.secrets()...)
		}
		t.secretValues(func(_ *openapi.Parameter, value string) { all = append(all, value) })
	}
	slices.Sort(all)
	return slices.Compact(all)
}

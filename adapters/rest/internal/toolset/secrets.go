package toolset

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// MaxPublishedSecrets bounds the secrets of a catalogue: each is looked for in all
// that clients are told.
const MaxPublishedSecrets = 100

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

// RequestOf returns a request as clients are told it. hidden are parameters of its
// query that they are not told, whatever their names.
func RequestOf(op *openapi.Operation, hidden ...string) string {
	return op.Method + " " + PathOf(op, hidden...)
}

// Request returns the tool's.
func (t *Tool) Request() string { return RequestOf(t.Operation, t.Settings.MaskedQuery...) }

// PathOf returns the path and the query of a request. What the query has of
// secrets is masked, unless it is the document's.
func PathOf(op *openapi.Operation, hidden ...string) string {
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

// Secrets returns what the headers and the query of an entry have of themselves
// that is probably a secret: the API's own headers and credentials are known as
// such.
func (t *Entry) Secrets() []string {
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
func (t *Entry) inQuery(add func(name, text string)) {
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

// Hides adds the secrets of a catalogue's entry to those of the others. It reports
// false when they would be too many.
func (t *Entry) Hides(known map[string]bool) bool {
	own := slices.DeleteFunc(t.Secrets(), func(s string) bool { return known[s] })
	if len(known)+len(own) > MaxPublishedSecrets {
		return len(own) == 0
	}
	for _, s := range own {
		known[s] = true
	}
	return true
}

// Masked returns the names of the entry's headers whose values nobody is shown.
func (t *Entry) Masked() []string {
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
func (t *Entry) maskedQuery() []string {
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
func (t *Tool) secretValues(found func(p *openapi.Parameter, value string)) {
	own := t.Shared.Args
	if t.Entry != nil {
		own = slices.Concat(own, t.Entry.Args)
	}
	for i := range own {
		if own[i].Value == nil {
			continue
		}
		for _, a := range t.Call.Arguments {
			if p := a.Parameter; a.Name == own[i].Name && p != nil && (p.In == openapi.InQuery && secretParameter(p.Name) || p.In != openapi.InQuery && secretHeader(p.Name)) {
				found(p, gjson.ParseBytes(own[i].Value).String())
			}
		}
	}
}

// Conceal notes which headers and parameters of the query are not shown, beside
// those of the entry that have the name of a secret: those that have one of the
// secrets in them, and values of arguments.
func (t *Tool) Conceal(secrets []string) {
	holds := func(text string) bool {
		return slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(text, secret) })
	}
	if t.Entry != nil && len(secrets) > 0 {
		for name, text := range t.Entry.Headers {
			if holds(text) {
				t.Settings.Masked = append(t.Settings.Masked, http.CanonicalHeaderKey(name))
			}
		}
		plain := t.Request()
		t.Entry.inQuery(func(name, text string) {
			if holds(text) {
				t.Settings.MaskedQuery = append(t.Settings.MaskedQuery, name)
			}
		})
		if t.Description == plain { // it has none of its own
			t.Description = t.Request()
		}
	}
	t.secretValues(func(p *openapi.Parameter, _ string) {
		if p.In == openapi.InHeader {
			t.Settings.Masked = append(t.Settings.Masked, http.CanonicalHeaderKey(p.Name))
		} else if p.In == openapi.InQuery {
			t.Settings.MaskedQuery = append(t.Settings.MaskedQuery, p.Name)
		}
	})
}

// Secrets returns what a catalogue's entry has of secrets, and the values for its
// parameters that the configuration has.
func (t *Tool) Secrets() []string {
	var all []string
	if t.Published != nil {
		all = t.Published.Secrets()
	}
	t.secretValues(func(_ *openapi.Parameter, value string) { all = append(all, value) })
	return all
}

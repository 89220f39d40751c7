package toolset

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// MaxPublishedSecrets bounds the secrets of a catalogue, since all that clients see is searched for
// each secret.
const MaxPublishedSecrets = 100

// keyHeader is the header with a key by which an API recognizes a repeated request.
const keyHeader = "Idempotency-Key"

// secretHeader reports whether a header's value is probably a secret, by the header's name. That of
// an Idempotency-Key is not.
func secretHeader(name string) bool {
	return sanitize.MayNameSecret(name) && !strings.EqualFold(name, keyHeader)
}

// secretParameter reports whether the value of a query parameter is probably a secret, by the
// parameter's name. Those of author and keywords are not.
func secretParameter(name string) bool {
	name = strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
	return slices.Contains([]string{"key", "auth", "sig"}, name) || slices.ContainsFunc(
		[]string{"apikey", "accesskey", "authkey", "secretkey", "token", "secret", "password", "signature"},
		func(end string) bool { return strings.HasSuffix(name, end) })
}

// RequestOf returns the method, the path and the query of an operation as clients see them. See
// PathOf for the masked parts.
func RequestOf(op *openapi.Operation, hidden ...string) string {
	return op.Method + " " + PathOf(op, hidden...)
}

// Request returns the tool's request as clients see it.
func (t *Tool) Request() string { return RequestOf(t.Operation, t.Settings.MaskedQuery...) }

// PathOf returns the path and the query of an operation. Unless the operation is from a document, it
// masks values in the query that are probably secrets, and those of the parameters named in hidden.
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

// Secrets returns the probable secrets in the entry's headers and query, sorted. It does not return
// those of the API's headers and credentials.
func (e *Entry) Secrets() []string {
	var all []string
	for name, text := range e.Headers {
		if secretHeader(name) {
			all = append(all, literals(text)...)
		}
	}
	e.inQuery(func(name, text string) {
		if secretParameter(name) {
			all = append(all, literals(text)...)
		}
	})
	slices.Sort(all)
	return slices.Compact(all)
}

// inQuery calls add with the name and the value of each query parameter that Query or Request sets.
// Values are templates. It calls add twice for an escaped value: once with the unescaped value.
func (e *Entry) inQuery(add func(name, text string)) {
	gjson.ParseBytes(e.Query).ForEach(func(name, v gjson.Result) bool {
		items := []gjson.Result{v}
		if v.IsArray() {
			items = v.Array()
		}
		for _, item := range items {
			add(name.String(), item.String())
		}
		return true
	})
	_, query, _ := strings.Cut(e.Request, "?")
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

// literals returns the texts of a template outside its placeholders. For a text such as "Bearer
// TOKEN", it also returns the part after the blank.
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

// Hides adds the entry's secrets to known. If known would then have more than MaxPublishedSecrets,
// Hides adds nothing and reports false.
func (e *Entry) Hides(known map[string]bool) bool {
	own := slices.DeleteFunc(e.Secrets(), func(s string) bool { return known[s] })
	if len(known)+len(own) > MaxPublishedSecrets {
		return len(own) == 0
	}
	for _, s := range own {
		known[s] = true
	}
	return true
}

// Masked returns the canonical names of the entry's headers that are probably secrets.
func (e *Entry) Masked() []string {
	var all []string
	for name := range e.Headers {
		if secretHeader(name) {
			all = append(all, http.CanonicalHeaderKey(name))
		}
	}
	return all
}

// maskedQuery returns the names of query parameters whose values in the entry are probably secrets.
func (e *Entry) maskedQuery() []string {
	var all []string
	e.inQuery(func(name, text string) {
		if secretParameter(name) && len(literals(text)) > 0 {
			all = append(all, name)
		}
	})
	return all
}

// secretValues calls found with each configured value of a parameter that is probably a secret: by
// the parameter's name, or because holds, unless nil, returns true for the value.
func (t *Tool) secretValues(holds func(value string) bool, found func(p *openapi.Parameter, value string)) {
	for _, own := range t.Args {
		if own.Value == nil {
			continue
		}
		for _, a := range t.Call.Arguments {
			p, value := a.Parameter, gjson.ParseBytes(own.Value).String()
			if a.Name == own.Name && p != nil && (p.In == openapi.InQuery && secretParameter(p.Name) || p.In != openapi.InQuery && secretHeader(p.Name) || holds != nil && holds(value)) {
				found(p, value)
			}
		}
	}
}

// Conceal masks the entry's headers and query parameters that contain one of the secrets. It also
// masks a parameter whose configured value contains a secret, or whose name suggests one.
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
		if t.Description == plain { // the description is the request itself
			t.Description = t.Request()
		}
	}
	t.secretValues(holds, func(p *openapi.Parameter, _ string) {
		switch p.In {
		case openapi.InHeader:
			t.Settings.Masked = append(t.Settings.Masked, http.CanonicalHeaderKey(p.Name))
		case openapi.InCookie:
			t.Settings.Masked = append(t.Settings.Masked, "Cookie")
		case openapi.InQuery:
			t.Settings.MaskedQuery = append(t.Settings.MaskedQuery, p.Name)
		}
	})
}

// Secrets returns the probable secrets of the tool's catalogue entry, and the configured values of
// parameters whose names suggest a secret.
func (t *Tool) Secrets() []string {
	var all []string
	if t.Published != nil {
		all = t.Published.Secrets()
	}
	t.secretValues(nil, func(_ *openapi.Parameter, value string) { all = append(all, value) })
	return all
}

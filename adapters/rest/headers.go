package rest

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/httpclient"
	"github.com/mcp-bridge/bridge/adapters/rest/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/wire"
)

// headerTemplates reads the headers of an entry.
func (t *Tool) headerTemplates(use func(name string) bool) (map[string]*template, Faults) {
	all := map[string]*template{}
	var faults Faults
	for _, name := range sortedKeys(t.Headers) {
		add := func(format string, args ...any) {
			faults = append(faults, t.keyFault("headers: "+name, "headers: "+format, args...))
		}
		one, err := parseText(t.Headers[name], use)
		switch {
		case err != nil:
			add("%s: %s", name, err)
		case !httpguts.ValidHeaderFieldName(name):
			add("%q is not the name of a header", name)
		case httpclient.Reserved(name) || strings.EqualFold(name, "Cookie"):
			add("%s is set by the bridge itself: remove it", name)
		}
		all[name] = one
	}
	return all, faults
}

// headerArguments are what headers with templates are among the arguments of a
// request.
func headerArguments(headers map[string]*template) []openapi.Argument {
	var all []openapi.Argument
	for _, name := range sortedKeys(headers) {
		p := &openapi.Parameter{Name: name, In: openapi.InHeader, Style: "simple", Type: "string"}
		all = append(all, openapi.Argument{Name: headerArg + name, Place: openapi.InHeader, Parameter: p})
	}
	return all
}

// filledHeaders fills these. What was made of arguments may not be sent: that is
// told with the name of the header, since several may be to blame.
func filledHeaders(headers map[string]*template, values map[string]gjson.Result) ([]member, error) {
	var all []member
	for _, name := range sortedKeys(headers) {
		t := headers[name]
		if _, given := values[t.only()]; t.asGiven && !given {
			continue
		}
		text := t.text(values)
		if !httpguts.ValidHeaderFieldValue(text) {
			return nil, wire.Refusal(fmt.Sprintf("%s: what comes into the header %s has a line break or another character that a header cannot have", strings.Join(t.args(), ", "), name))
		}
		all = append(all, member{headerArg + name, quoted(text)})
	}
	return all, nil
}

// secrets returns what the headers of entries have that is probably a secret: the
// API's own and credentials are known as such. An Idempotency-Key is none.
func (c *Config) secrets() []string {
	var all []string
	for i := range c.Tools {
		for name, text := range c.Tools[i].Headers {
			if wire.Sensitive(name) && !strings.EqualFold(name, keyHeader) && !place.MatchString(text) {
				all = append(all, text)
			}
		}
	}
	return all
}

// only returns the argument that is all of the text.
func (t *template) only() string {
	if t.asGiven {
		return t.parts[0].arg
	}
	return ""
}

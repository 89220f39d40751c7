package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// inDefault are the keys of a single credential whose value is a mapping. Any other key with a mapping is the name of a
// security scheme.
var inDefault = []string{"client", "aws", "hook"}

// restValue reads the values that only the kind rest has. For other values known is false.
func (d *decoder) restValue(s *strict.Slot, n *yaml.Node, v any) (ok, known bool) {
	switch into := v.(type) {
	case *string:
		if s.Label == "openapi" && strict.Kind(n) == strict.Map {
			return d.document(s, n, into), true
		}
	case *rest.Auth:
		return d.auth(s, n, into), true
	case *[]string: // in a match, a text stands for a list of one
		if strict.Kind(n) == strict.String && strings.HasSuffix(s.Section.Where, ": match: ") {
			got, ok := d.Scalar(s, n, reflect.TypeFor[string]())
			*into = []string{got.Value}
			return ok, true
		}
	case *[]rest.Rule:
		return d.restRules(s, n, into), true
	case *[]rest.Tool:
		return d.restTools(s, n, into), true
	case *[]rest.Arg:
		return d.restArgs(s, n, into), true
	case *failure:
		return d.failure(s, n, into), true
	}
	return false, false
}

// auth reads credentials: one for all requests, or credentials by the names of security schemes.
func (d *decoder) auth(s *strict.Slot, n *yaml.Node, into *rest.Auth) bool {
	list, ok := d.Entries(s.Section.Where+s.Label+": ", n)
	if !ok {
		return d.Mistyped(s, n, "a mapping such as { bearer: ${TOKEN} } or { SCHEME: { value: ${KEY} } }")
	}
	schemes := len(list) > 0
	for _, e := range list {
		schemes = schemes && strict.Kind(e.Value) == strict.Map && (!slices.Contains(inDefault, e.Key) || len(list) > 1)
	}
	if !schemes {
		c, ok := d.credential(s, n)
		into.Default = c
		return ok
	}
	into.Schemes = map[string]rest.Credential{}
	for _, e := range list {
		at := &strict.Slot{
			Section: s.Section,
			Label:   s.Label + ": " + e.Key,
			Line:    e.Line,
		}
		c, good := d.credential(at, e.Value)
		if ok = good && ok; good {
			into.Schemes[e.Key] = *c
		}
	}
	return ok
}

// credential reads one credential. If it is faulty, credential adds a fault and reports false.
func (d *decoder) credential(s *strict.Slot, n *yaml.Node) (*rest.Credential, bool) {
	var c rest.Credential
	if _, ok := d.whole(s, n, &c); !ok {
		return nil, false
	}
	if len(c.Bearer) > 7 && strings.EqualFold(c.Bearer[:7], "Bearer ") { // a token has no space
		c.Bearer = strings.TrimSpace(c.Bearer[7:])
		d.Warn(s.Line, "%s%s: bearer begins with Bearer, which the bridge adds itself: write the token alone", s.Section.Where, s.Label)
	}
	kinds, places := 0, 0
	for _, set := range []bool{c.Key != "", c.User != "" || c.Password != "", c.Bearer != "", c.Client != nil || c.Login, c.AWS != nil, c.Hook != nil} {
		if set {
			kinds++
		}
	}
	for _, place := range []string{c.Header, c.Query, c.Cookie} {
		if place != "" {
			places++
		}
	}
	wrong := ""
	switch {
	case kinds != 1:
		wrong = "needs one of value, bearer, user and password, client, login, aws, and hook"
	case places > 1 || places > 0 && c.Key == "":
		wrong = "needs one of header, query and cookie beside value, and with nothing else"
	case c.AWS != nil:
		wrong = d.awsFromEnvironment(c.AWS)
	case c.Hook != nil:
		wrong = hookFault(c.Hook)
	}
	if wrong == "" && c.Exchange != "" && c.Client == nil {
		wrong = "needs a client with exchange"
	}
	if err := c.CheckTokens(); wrong == "" && err != nil {
		wrong, _, _ = strings.Cut(err.Error(), "\n")
	}
	if wrong != "" {
		d.Fault(s.Line, "%s%s: %s", s.Section.Where, s.Label, wrong)
		return nil, false
	}
	return &c, true
}

// awsFromEnvironment fills in missing values from the variables that AWS's own tools use. If values are still missing,
// it returns the fault.
func (d *decoder) awsFromEnvironment(a *rest.AWS) string {
	from := func(name string) string {
		value, _ := d.Env(name)
		return value
	}
	if a.AccessKey == "" && a.SecretKey == "" && a.SessionToken == "" {
		a.AccessKey, a.SecretKey, a.SessionToken = from("AWS_ACCESS_KEY_ID"), from("AWS_SECRET_ACCESS_KEY"), from("AWS_SESSION_TOKEN")
		for _, secret := range []string{a.SecretKey, a.SessionToken} {
			if secret != "" {
				d.Secrets[secret] = "***"
			}
		}
	}
	a.Region = cmp.Or(a.Region, from("AWS_REGION"), from("AWS_DEFAULT_REGION"))
	switch {
	case a.Service == "":
		return "needs service in aws, such as execute-api"
	case a.Region == "":
		return "needs region in aws, or the variable AWS_REGION"
	case a.AccessKey == "" || a.SecretKey == "":
		return "needs access_key and secret_key in aws, or the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
	}
	return ""
}

// hookFault returns the fault of a hook, or "".
func hookFault(h *rest.Hook) string {
	u, err := url.Parse(h.URL)
	switch {
	case (len(h.Command) == 0) == (h.URL == ""):
		return "needs one of command and url in hook"
	case h.URL == "" && h.Command[0] == "":
		return "needs a program in command of hook"
	case h.URL == "" && len(h.Headers) > 0:
		return "has headers in hook, which are for url"
	case h.URL != "" && len(h.Env) > 0:
		return "has env in hook, which is for command"
	case h.URL != "" && (err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https"):
		return "needs an address such as https://sign.example.com/headers as url in hook"
	case h.Timeout < 0:
		return "needs a timeout in hook that is not negative"
	}
	return ""
}

// checkRest adds the broken rules about an HTTP API that its adapter does not check.
func (s *Server) checkRest(all *breaches) {
	if s.Rest == nil {
		return
	}
	if s.Era != EraAuto || s.Revision != "" {
		all.with("era", "revision", "has no effect with rest: the bridge itself is the server, for all clients; leave it out")
	}
	const tooLong = "must not be longer than max_timeout, which is 1h unless it is set"
	for _, e := range s.Rest.Tools {
		if e.Timeout > s.MaxTimeout {
			all.with("rest: tools: "+e.Key+": timeout", "max_timeout", tooLong)
		}
	}
	for i := range s.Rest.Rules {
		if s.Rest.Rules[i].Entry.Timeout > s.MaxTimeout {
			all.with(fmt.Sprintf("rest: rules: item %d: timeout", i+1), "max_timeout", tooLong)
		}
	}
}

// restRemarks returns warnings about the credentials of an HTTP API.
func (s *Server) restRemarks() (all breaches) {
	c := s.Rest
	secret := c.Auth.Default != nil || len(c.Auth.Schemes) > 0
	for name, value := range c.Headers {
		secret = secret || isCredential(name) || slices.ContainsFunc(c.Secrets, func(s string) bool { return strings.Contains(value, s) })
	}
	for _, f := range s.Forward {
		secret = secret || isCredential(f.To)
	}
	if secret && unencrypted(c.BaseURL) {
		all.add("rest: base_url", "is not encrypted: anybody on the network path can read the credentials; use https if the API has it")
	}
	if secret && c.BaseURL == "" && address.IsHTTP(c.OpenAPI) {
		all.add("rest: openapi", "is a URL, and base_url is missing: set base_url, so that the configuration and not the document decides where the credentials go. Without it they go to the server of the document, and calls to other servers are refused")
	}
	for _, hook := range hooks(&c.Auth) {
		if unencrypted(hook.URL) {
			all.add("rest: auth: hook: url", "is not encrypted: anybody on the network path can read what is to be signed; use https if the service has it")
		}
	}
	for name := range c.Catalog.Headers {
		if isCredential(name) && unencrypted(c.Catalog.URL) {
			all.add("rest: catalog: url", "is not encrypted: anybody on the network path can read the credentials; use https if the engine has it")
			break
		}
	}
	for name := range c.OpenAPIHeaders {
		if isCredential(name) && unencrypted(c.OpenAPI) {
			all.add("rest: openapi", "is not encrypted: anybody on the network path can read the credentials in openapi_headers; use https if the server has it")
			break
		}
	}
	return all
}

func hooks(a *rest.Auth) (all []*rest.Hook) {
	for _, c := range append(slices.Collect(maps.Values(a.Schemes)), *cmp.Or(a.Default, &rest.Credential{})) {
		if c.Hook != nil {
			all = append(all, c.Hook)
		}
	}
	return all
}

// unencrypted reports whether requests to a URL cross the network without encryption.
func unencrypted(at string) bool {
	u, err := url.Parse(at)
	return err == nil && u.Scheme == "http" && !address.Local(strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")))
}

// sent is a value from the environment, with the section whose requests contain it.
type sent struct{ where, value string }

// NoteExpanded remembers values from the environment that requests to an HTTP API contain, in headers, queries or
// arguments.
func (d *decoder) NoteExpanded(s *strict.Slot, whole string, values []string) {
	if len(values) == 0 || !strings.Contains(s.Section.Where, ": rest: ") {
		return
	}
	switch {
	case s.Label == "base_url", s.Label == "request": // only the query of a URL
		_, whole, _ = strings.Cut(whole, "?")
	case strings.HasPrefix(s.Label, "headers: "), strings.HasPrefix(s.Label, "openapi_headers: "), strings.HasPrefix(s.Label, "query: "),
		strings.Contains(s.Section.Where, ": args: ") && (s.Label == "value" || strings.HasPrefix(s.Label, "value: ")):
	default:
		return
	}
	for _, v := range values {
		if strings.Contains(whole, v) {
			d.sent = append(d.sent, sent{s.Section.Where, v})
		}
	}
}

// sentBy returns the values that requests of a section, and of sections in it, contain.
func (d *decoder) sentBy(sec *strict.Section) []string {
	var all []string
	for _, s := range d.sent {
		if strings.HasPrefix(s.where, sec.Where) && !slices.Contains(all, s.value) {
			all = append(all, s.value)
		}
	}
	return all
}

// resolveRest makes the paths of an HTTP API's files absolute, and checks the files. The callers of Load read the
// document.
func (d *decoder) resolveRest(sec *strict.Section, c *rest.Config) {
	if c.Document == nil && !address.IsHTTP(c.OpenAPI) {
		d.resolveText(sec, "openapi", &c.OpenAPI)
	}
	for i := range c.Overlays {
		d.resolveText(sec, "overlays", &c.Overlays[i])
	}
	if c.KeepDir != "" {
		c.KeepDir = d.absolute(c.KeepDir)
	}
	for _, hook := range hooks(&c.Auth) {
		if len(hook.Command) > 0 && strings.ContainsAny(hook.Command[0], `/\`) { // a name without a folder is looked up in PATH
			hook.Command[0] = d.absolute(hook.Command[0])
		}
	}
	for i, item := range c.Trusted {
		if !strings.HasPrefix(item, ".") && !filepath.IsAbs(item) { // an origin
			continue
		}
		c.Trusted[i] = d.absolute(item)
		if info, err := os.Stat(c.Trusted[i]); err != nil || !info.IsDir() {
			d.Warn(sec.Marks["trusted"].Line, "%strusted: item %d: there is no such folder", sec.Where, i+1)
		}
	}
	d.resolveText(sec, "catalog: file", &c.Catalog.File)
	h := remote.Config{
		URL:         "http://localhost",
		CAFile:      c.CAFile,
		CertFile:    c.CertFile,
		KeyFile:     c.KeyFile,
		Proxy:       c.Proxy,
		IdleTimeout: c.IdleTimeout,
	}
	d.resolveRemote(sec, &h)
	c.CAFile, c.CertFile, c.KeyFile = h.CAFile, h.CertFile, h.KeyFile
}

// FaultsOf turns an error of the adapter of an HTTP API into faults with lines of the file.
func (c *Config) FaultsOf(server string, err error) Faults {
	where := fmt.Sprintf("server %q: rest: ", server)
	if wrong, ok := errors.AsType[rest.Faults](err); ok {
		var all Faults
		for _, f := range wrong {
			line := f.Line
			if line == 0 {
				line = c.lineOf(server, f.String())
			}
			all = append(all, Fault{
				File:    c.name,
				Line:    line,
				Message: where + f.String(),
			})
		}
		return all
	}
	line := c.lineOf(server, err.Error())
	message := where + err.Error()
	if errors.Is(err, fs.ErrNotExist) { // the warning of Load shows the path as the file has it
		for _, w := range c.Warnings {
			text, found := strings.CutPrefix(w, fmt.Sprintf("%s:%d: ", c.name, line))
			if found && strings.HasPrefix(text, where+"openapi is ") {
				message = text
			}
		}
	}
	return Faults{{
		File:    c.name,
		Line:    line,
		Message: message,
	}}
}

// lineOf returns the line of the key under rest with which text, an error of the adapter, begins. If the file does not
// have that key, lineOf returns the line of openapi or of rest, or 0.
func (c *Config) lineOf(server, text string) int {
	key, _, _ := strings.Cut(text, ": ")
	for _, name := range []string{"rest." + key, "rest.openapi", "rest"} {
		if found, ok := c.Origin(server, name); ok {
			return found.Line
		}
	}
	return 0
}

// resolveText makes the path of a file absolute, and checks the file. A missing file is only a warning, since it may be
// created before the start.
func (d *decoder) resolveText(sec *strict.Section, key string, path *string) {
	m := sec.Marks[key]
	if *path == "" || m.Bad {
		return
	}
	shown := d.Redact(strconv.Quote(*path))
	*path = d.absolute(*path)
	if info, err := os.Stat(*path); err != nil {
		d.Warn(m.Line, "%s%s is %s: %s", sec.Where, key, shown, files.Reason(err))
	} else if info.IsDir() {
		d.Warn(m.Line, "%s%s is %s: is a directory", sec.Where, key, shown)
	}
}

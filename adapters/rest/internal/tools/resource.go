package tools

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// scheme is the beginning of every resource's URI.
const scheme = "rest://"

// keyRequest is the key in a tool's _meta under which the tool's HTTP request is shown.
const keyRequest = "mcp-bridge/request"

// maxURI bounds the URI in a request, in bytes.
const maxURI = 8 << 10

// Resource is a GET whose answers clients read at a URI below rest://SERVER. The URI has the path of
// the request, and the other arguments in its query.
type Resource struct {
	*toolset.Tool
	uri    string            // a template (RFC 6570) unless plain
	plain  bool              // the resource has no arguments
	path   *regexp.Regexp    // matches the encoded path, and captures the arguments inPath
	inPath []string          // arguments in the path, in order
	query  map[string]string // by variable of the query: the argument
	lists  map[string]bool   // arguments that are lists
	fixed  int               // bytes of the path outside of variables
}

var pathPart = regexp.MustCompile(`\{[^{}]*\}`)

// asResource returns the resource for a tool of the server with that name. It changes t.Call.
func asResource(t *toolset.Tool, server string) *Resource {
	r := &Resource{
		Tool:  t,
		query: map[string]string{},
		lists: map[string]bool{},
	}
	shown := map[string]string{} // by argument of the call: the name that clients see
	if t.Entry.Request == "" {
		for _, a := range t.Args {
			shown[a.Name] = a.As
		}
	}
	var args []string
	gjson.GetBytes(t.InputSchema, "properties").ForEach(func(k, v gjson.Result) bool {
		args = append(args, k.String())
		r.lists[k.String()] = v.Get("type").String() == "array"
		return true
	})
	path, _, _ := strings.Cut(t.Operation.Path, "?")
	pattern := "^"
	r.uri = scheme + server
	variables := map[string]bool{}
	variable := func(name string) string {
		v := strings.ReplaceAll(name, "-", "_") // RFC 6570 allows no hyphens in names
		for variables[v] {
			v += "_"
		}
		variables[v] = true
		return v
	}
	literal := func(text string) {
		text = (&url.URL{Path: text}).EscapedPath()
		r.uri += text
		r.fixed += len(text)
		pattern += regexp.QuoteMeta(text)
	}
	at := 0
	for _, span := range pathPart.FindAllStringIndex(path, -1) {
		literal(path[at:span[0]])
		at = span[1]
		i := slices.IndexFunc(t.Call.Arguments, func(a openapi.Argument) bool {
			return a.Place == openapi.InPath && a.Parameter.Name == path[span[0]+1:span[1]-1]
		})
		if i < 0 {
			continue // openapi.Tools reports the fault
		}
		a := t.Call.Arguments[i]
		name := cmp.Or(shown[a.Name], a.Name)
		if !slices.Contains(args, name) {
			j := slices.IndexFunc(t.Args, func(one toolset.Arg) bool { return one.Name == a.Name })
			if j < 0 {
				continue
			}
			value := url.PathEscape(toolset.TextOf(gjson.ParseBytes(t.Args[j].Value)))
			r.uri += value
			pattern += regexp.QuoteMeta(value)
			continue
		}
		r.inPath = append(r.inPath, name)
		if a.Parameter.AllowReserved {
			r.uri += "{+" + variable(name) + "}"
			pattern += "(.+)"
		} else {
			r.uri += "{" + variable(name) + "}"
			pattern += "([^/]+)"
		}
	}
	literal(path[at:])
	var query []string
	for _, name := range args {
		if slices.Contains(r.inPath, name) {
			continue
		}
		v := variable(name)
		r.query[v] = name
		if r.lists[name] {
			v += "*"
		}
		query = append(query, v)
	}
	if len(query) > 0 {
		r.uri += "{?" + strings.Join(query, ",") + "}"
	}
	r.plain = len(args) == 0
	r.path = regexp.MustCompile(pattern + "$")
	call := *t.Call
	call.InputSchema, call.OutputSchema, call.Wrapped = t.InputSchema, nil, false // contents are returned unchanged
	t.Call = &call
	return r
}

// takeResources moves the resources from m.tools to m.Resources. It is a fault if two resources have the
// same URIs.
func (s *Settings) takeResources(m *Made) {
	known := map[string]*Resource{}
	m.tools = slices.DeleteFunc(m.tools, func(t *toolset.Tool) bool {
		if t.Entry == nil || t.Entry.As != toolset.AsResource {
			return false
		}
		if t.Operation.Method != http.MethodGet {
			return true // Entry.settings reports the fault
		}
		r := asResource(t, s.API.Name)
		if other := known[r.path.String()]; other != nil {
			m.Faults = append(m.Faults, t.Entry.KeyFault("as", "as: %[2]s also has the address %[1]s: make one of them a tool", r.uri, other.Entry.Key))
			return true
		}
		known[r.path.String()] = r
		m.Resources = append(m.Resources, r)
		return true
	})
}

// item returns the JSON of the resource, or of its template, for a list.
func (r *Resource) item() []byte {
	key := "uriTemplate"
	if r.plain {
		key = "uri"
	}
	out := gjson.AppendJSONString([]byte(`{"`+key+`":`), r.uri)
	out = gjson.AppendJSONString(append(out, `,"name":`...), r.Name)
	if r.Title != "" {
		out = gjson.AppendJSONString(append(out, `,"title":`...), r.Title)
	}
	out = gjson.AppendJSONString(append(out, `,"description":`...), r.Description)
	if kind := r.kind(); kind != "" {
		out = gjson.AppendJSONString(append(out, `,"mimeType":`...), kind)
	}
	out = gjson.AppendJSONString(append(out, `,"_meta":{"`+keyRequest+`":`...), r.Request())
	return append(out, "}}"...)
}

// kind returns the media type of the contents if the document declares exactly one, or else "".
func (r *Resource) kind() string {
	kind := ""
	for _, answer := range r.Operation.Responses {
		if !strings.HasPrefix(answer.Status, "2") {
			continue
		}
		for _, m := range answer.Content {
			own, _, _ := strings.Cut(m.Type, ";")
			if strings.Contains(own, "*") || kind != "" && kind != own {
				return ""
			}
			kind = own
		}
	}
	return kind
}

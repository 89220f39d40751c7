package tools

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Set holds the tools and resources that clients see, and their lists. A finished Set does not change.
type Set struct {
	Tools          []*toolset.Tool
	ByName         map[string]*toolset.Tool
	Mode           string // ModeTools or ModeSearch
	Size           int    // bytes of a list of all tools, without omitted output schemas
	OutputsOmitted int    // bytes of output schemas omitted from the list
	About          string // the server's instructions
	Info           []byte // the server's serverInfo, as JSON
	items          []item // of tools/list

	resources        []*Resource // in the order in which ResourceAt compares them with a URI
	prefix           string      // of the URIs of resources
	Plain, Templates []byte      // results of resources/list and resources/templates/list
}

// item is a tool in tools/list, without its JSON: thousands of them would take as much memory again as their schemas.
type item struct {
	t    *toolset.Tool
	size int    // of the JSON, in bytes
	sum  uint64 // hash of the JSON
}

// itemSeed is the seed of all sums.
var itemSeed = maphash.MakeSeed()

// newSet returns the Set of an API's tools. In ModeAuto, if only a list without output
// schemas fits within AutoLimit, it omits these, which models do not read. If even that list is too
// long, the mode is ModeSearch.
func newSet(tools []*toolset.Tool, mode string) *Set {
	s := &Set{
		Tools:  tools,
		ByName: map[string]*toolset.Tool{},
		Mode:   mode,
	}
	var scratch []byte
	outputs := 0
	for _, t := range tools {
		if t.Call != t.Tool {
			call := *t.Call
			call.InputSchema = t.InputSchema
			t.Call = &call
		}
		scratch = AppendEntry(scratch[:0], t)
		s.Size += len(scratch) + 1
		s.ByName[t.Name] = t
		if t.OutputSchema != nil {
			outputs += len(keyOutput) + len(t.OutputSchema)
		}
	}
	if s.Mode == "" || s.Mode == ModeAuto {
		switch s.Mode = ModeTools; {
		case s.Size <= AutoLimit:
		case s.Size-outputs > AutoLimit:
			s.Mode = ModeSearch
		default:
			s.OutputsOmitted, s.Size = outputs, s.Size-outputs
			for _, t := range tools {
				t.OutputOmitted = t.OutputSchema != nil
				t.LeaveOutput()
			}
		}
	}
	for _, t := range tools {
		scratch = AppendEntry(scratch[:0], t)
		s.items = append(s.items, item{t, len(scratch), maphash.Bytes(itemSeed, scratch)})
	}
	return s
}

const keyOutput = `,"outputSchema":`

// AppendEntry appends the JSON of a tool for tools/list, on one line.
func AppendEntry(dst []byte, t *toolset.Tool) []byte {
	begin := len(dst)
	out := gjson.AppendJSONString(append(dst, `{"name":`...), t.Name)
	if t.Title != "" {
		out = gjson.AppendJSONString(append(out, `,"title":`...), t.Title)
	}
	out = gjson.AppendJSONString(append(out, `,"description":`...), t.Description)
	out = append(append(out, `,"inputSchema":`...), t.InputSchema...)
	if t.OutputSchema != nil {
		out = append(append(out, keyOutput...), t.OutputSchema...)
	}
	a := t.Annotations
	out = fmt.Appendf(out, `,"annotations":{"readOnlyHint":%t,"destructiveHint":%t,"idempotentHint":%t,"openWorldHint":%t}`, a.ReadOnly, a.Destructive, a.Idempotent, a.OpenWorld)
	out = gjson.AppendJSONString(append(out, `,"_meta":{"`+keyRequest+`":`...), t.Request())
	out = append(out, "}}"...)
	OneLine(out[begin:])
	return out
}

// OneLine replaces the line breaks of JSON by blanks, in place. Valid JSON has line breaks only
// between tokens.
func OneLine(b []byte) []byte {
	for _, c := range []byte("\n\r") {
		for at := b; ; {
			i := bytes.IndexByte(at, c)
			if i < 0 {
				break
			}
			at[i], at = ' ', at[i+1:]
		}
	}
	return b
}

// PageSize bounds a page of tools/list, in bytes. A page has at least one tool, even if that tool is
// larger.
const PageSize = 512 << 10

// Page returns the result of tools/list. An empty cursor means the first page. Any other cursor
// encodes the name of the last tool of the page before, and so stays valid when the list changes.
// Page reports false if the list does not have that tool.
func (s *Set) Page(cursor string) ([]byte, bool) {
	from := 0
	if cursor != "" {
		name, err := base64.RawURLEncoding.DecodeString(cursor)
		i := slices.IndexFunc(s.items, func(it item) bool { return it.t.Name == string(name) })
		if err != nil || i < 0 {
			return nil, false
		}
		from = i + 1
	}
	out := []byte(`{"tools":[`)
	for i := range s.items[from:] {
		it := &s.items[from+i]
		if i > 0 {
			if len(out)+it.size > PageSize {
				next := base64.RawURLEncoding.EncodeToString([]byte(s.items[from+i-1].t.Name))
				return append(out, `],"nextCursor":"`+next+`"}`...), true
			}
			out = append(out, ',')
		}
		out = AppendEntry(out, it.t)
	}
	return append(out, `]}`...), true
}

// SameResources reports whether clients see the same resources in both sets.
func (s *Set) SameResources(other *Set) bool {
	return bytes.Equal(s.Plain, other.Plain) && bytes.Equal(s.Templates, other.Templates)
}

// Same reports whether clients see the same tools in both sets.
func (s *Set) Same(other *Set) bool {
	return slices.EqualFunc(s.items, other.items, func(i, b item) bool { return i.size == b.size && i.sum == b.sum })
}

// listResources sets the lists of resources and of templates.
func (s *Set) listResources(all []*Resource, server string) {
	s.prefix = scheme + server
	plain, templates := []byte(`{"resources":[`), []byte(`{"resourceTemplates":[`)
	add := func(list, one []byte) []byte {
		if list[len(list)-1] != '[' {
			list = append(list, ',')
		}
		return append(list, one...)
	}
	for _, r := range all {
		if r.plain {
			plain = add(plain, r.item())
		} else {
			templates = add(templates, r.item())
		}
	}
	s.Plain, s.Templates = append(plain, "]}"...), append(templates, "]}"...)
	// The more specific path comes first, so that /pets/new is not read as /pets/{id}.
	s.resources = slices.Clone(all)
	slices.SortStableFunc(s.resources, func(r, b *Resource) int {
		return cmp.Or(len(r.inPath)-len(b.inPath), b.fixed-r.fixed)
	})
}

// ErrNoResource is the error of a URI without a resource.
var ErrNoResource = errors.New("there is no such resource")

// ResourceAt returns the resource at a URI, and the arguments in the URI.
func (s *Set) ResourceAt(uri string) (*Resource, []byte, error) {
	rest, ok := strings.CutPrefix(uri, s.prefix)
	if !ok || len(uri) > maxURI {
		return nil, nil, ErrNoResource
	}
	rest, _, _ = strings.Cut(rest, "#")
	path, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, nil, fmt.Errorf("the query of %.200q is not percent-encoded correctly", uri)
	}
	for _, r := range s.resources {
		found := r.path.FindStringSubmatch(path)
		if found == nil {
			continue
		}
		var args []rawjson.Member
		for i, name := range r.inPath {
			// A comma between values is plain, and a comma in a value is encoded.
			parts := []string{found[i+1]}
			if r.lists[name] {
				parts = strings.Split(found[i+1], ",")
			}
			for j := range parts {
				if parts[j], err = url.PathUnescape(parts[j]); err != nil {
					return nil, nil, fmt.Errorf("the path of %.200q is not percent-encoded correctly", uri)
				}
			}
			if r.lists[name] {
				args = append(args, rawjson.Member{Name: name, Value: rawjson.List(parts)})
				continue
			}
			args = append(args, rawjson.Member{Name: name, Value: []byte(rawjson.Quote(parts[0]))})
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			name, known := r.query[key]
			if !known {
				return nil, nil, fmt.Errorf("the resource has no argument %.80q", key)
			}
			if r.lists[name] {
				args = append(args, rawjson.Member{Name: name, Value: rawjson.List(values[key])})
				continue
			}
			if len(values[key]) > 1 {
				return nil, nil, fmt.Errorf("the argument %.80q is given twice", key)
			}
			args = append(args, rawjson.Member{Name: name, Value: []byte(rawjson.Quote(values[key][0]))})
		}
		return r, rawjson.Rewrite([]byte("{}"), nil, args...), nil
	}
	return nil, nil, ErrNoResource
}

// HasResources reports whether there are resources.
func (s *Set) HasResources() bool { return len(s.resources) > 0 }

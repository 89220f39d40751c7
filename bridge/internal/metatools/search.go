package metatools

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/listing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/find"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// maxIndexes bounds the lists whose index is in memory.
const maxIndexes = 16

// maxAnswer bounds the text of a search in bytes. Definitions that the model asked for by name are whole.
const maxAnswer = 16 << 10

// These constants bound the tools of an answer.
const (
	defaultLimit = 8
	maxLimit     = 50
	maxNames     = 10
)

// Indexes holds the indexes of lists by the lists' bytes, so that callers with equal lists share an index. It is safe
// for concurrent use.
type Indexes struct {
	all    *lru.Cache[[sha256.Size]byte, func() *index]
	pages  *lru.Cache[list.Page, *index] // for lists of one page that come from a cache, so that their bytes are read once
	checks *validate.Cache               // the compiled schemas of tools whose calls failed
}

// NewIndexes returns an empty Indexes.
func NewIndexes() *Indexes {
	all, err := lru.New[[sha256.Size]byte, func() *index](maxIndexes)
	if err != nil {
		panic(err) // the size is above zero
	}
	pages, err := lru.New[list.Page, *index](maxIndexes)
	if err != nil {
		panic(err)
	}
	return &Indexes{all, pages, validate.NewCache(maxIndexes)}
}

// index is a list of tools that can be searched.
type index struct {
	tools  []tool
	byName map[string]int
	words  *find.Index
}

// tool is a tool of an index.
type tool struct {
	name, server string
	item         []byte // the tool's entry in the list
	reads        bool
}

// of returns the index of a list. owner is as in Menu.
func (x *Indexes) of(items [][]byte, owner func(tool string) string) *index {
	sum, servers := sha256.New(), make([]string, len(items))
	for i, item := range items {
		if owner != nil {
			servers[i] = owner(gjson.GetBytes(item, "name").Str)
		}
		fmt.Fprintf(sum, "%d %q ", len(item), servers[i])
		sum.Write(item)
	}
	key := [sha256.Size]byte(sum.Sum(nil))
	made := sync.OnceValue(func() *index { return newIndex(items, servers) })
	if before, there, _ := x.all.PeekOrAdd(key, made); there {
		x.all.Get(key) // marks the index as used
		made = before
	}
	return made()
}

func newIndex(items [][]byte, servers []string) *index {
	x := &index{byName: map[string]int{}}
	var words []find.Tool
	for i, item := range items {
		d := gjson.ParseBytes(item)
		name := d.Get("name").Str
		if _, twice := x.byName[name]; twice || !visible(d) {
			continue
		}
		x.byName[name] = len(x.tools)
		x.tools = append(x.tools, tool{
			name:   name,
			server: servers[i],
			item:   item,
			reads:  reads(d),
		})
		words = append(words, find.Read(item, servers[i]))
	}
	x.words = find.New(words)
	return x
}

// reads reports whether a definition says that its tool only reads.
func reads(definition gjson.Result) bool {
	return definition.Get("annotations.readOnlyHint").Type == gjson.True
}

// visible reports whether a definition lets models use its tool. Some tools are only for the user interface of an app
// (extension io.modelcontextprotocol/ui, _meta.ui.visibility).
func visible(definition gjson.Result) bool {
	for _, whose := range definition.Get("_meta.ui.visibility").Array() {
		if whose.Str == "model" {
			return true
		}
	}
	return !definition.Get("_meta.ui.visibility").IsArray()
}

// index returns the index of the caller's list. no, if not nil, is the error of a server.
func (o *offered) index(ctx context.Context, r *bridge.Request) (x *index, no *jsonrpc.Message, err error) {
	first, err := o.Upstream.Call(ctx, listing.Request(r, []byte("{}"), r.From.Modern()))
	if err != nil {
		return nil, nil, err
	}
	page := list.PageOf(first)
	if x, known := o.m.Indexes.pages.Get(page); known {
		return x, nil, nil
	}
	_, more := list.Next(first.Result)
	items, no, err := o.all(ctx, r, first)
	if err != nil || no != nil {
		return nil, no, err
	}
	x = o.m.Indexes.of(items, o.m.Owner)
	if page != (list.Page{}) && !more {
		o.m.Indexes.pages.Add(page, x)
	}
	return x, nil, nil
}

// search answers a call of SearchTools.
func (o *offered) search(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	given, ok := object(rawjson.Get(r.Params, "arguments"))
	if !ok {
		return era.Refused(r.From.Modern(), r.Message, `arguments must be an object, such as {"query": "create an issue"}`), nil
	}
	x, no, err := o.index(ctx, r)
	if err != nil || no != nil {
		return no, err
	}
	args := gjson.ParseBytes(given)
	query, server := args.Get("query").String(), args.Get("server").String()
	if server != "" && !slices.Contains(o.m.Servers, server) {
		return era.Refused(r.From.Modern(), r.Message, fmt.Sprintf("There is no server %.80q.%s", server, o.servers(x))), nil
	}
	limit := defaultLimit
	if l := args.Get("limit"); l.Exists() && l.Type != gjson.Null {
		limit = int(min(max(l.Int(), 1), maxLimit))
	}
	var names []string
	for _, name := range args.Get("names").Array() { // a text is an array of one
		names = append(names, name.String())
	}
	switch {
	case len(names) > 0:
		names = names[:min(len(names), maxNames)]
		if text := o.definitions(x, names); !slices.ContainsFunc(names, x.has) {
			return era.Refused(r.From.Modern(), r.Message, text), nil
		} else {
			return o.text(r, text), nil
		}
	case strings.TrimSpace(query) != "":
		return o.text(r, o.found(x, query, server, limit)), nil
	case server != "":
		return o.text(r, o.answer(x, x.at(server), maxLimit)), nil
	}
	return o.text(r, strings.TrimSpace(o.servers(x))), nil
}

// servers returns a text with the servers and their numbers of tools.
func (o *offered) servers(x *index) string {
	count := map[string]int{}
	for _, t := range x.tools {
		if t.server == "" && len(o.m.Servers) > 0 { // none are left if a reload removes them during the search
			t.server = o.m.Servers[0]
		}
		count[t.server]++
	}
	var b strings.Builder
	b.WriteString(" The servers and their numbers of tools:")
	for _, name := range o.m.Servers {
		fmt.Fprintf(&b, "\n%s: %d", name, count[name])
	}
	return b.String()
}

// at returns the tools of a server, and the tools whose server is unknown, in the order of the list.
func (x *index) at(server string) (found []int) {
	for i, t := range x.tools {
		if t.server == server || t.server == "" {
			found = append(found, i)
		}
	}
	return found
}

// found answers a search for words.
func (o *offered) found(x *index, query, server string, limit int) string {
	found := x.words.Find(query)
	if server != "" {
		found = slices.DeleteFunc(found, func(i int) bool { return x.tools[i].server != server && x.tools[i].server != "" })
	}
	if len(found) == 0 {
		text := "No tool fits. Try other words, or fewer."
		if near := x.words.Near(query); len(near) > 0 {
			text += " There are tools with the words " + strings.Join(near, ", ") + "."
		}
		return text + o.servers(x)
	}
	return o.answer(x, found, limit)
}

// answer writes the first limit tools of found, one a line, in at most maxAnswer bytes. Where room gets short, later
// tools lose their schema, and then all but a line of their description.
func (o *offered) answer(x *index, found []int, limit int) string {
	shown := found[:min(len(found), limit)]
	const brief = 160 // bytes that each further tool gets at least
	var out []byte
	for i, at := range shown {
		t := &x.tools[at]
		room := maxAnswer - len(out) - brief*(len(shown)-i-1) - 100
		line := o.describe(t, true, room)
		if len(line) > room {
			line = o.describe(t, false, room)
		}
		if len(line) > room {
			line = t.line(room)
		}
		if len(line) > room {
			shown = shown[:i]
			break
		}
		out = append(append(out, line...), '\n')
	}
	if more := len(found) - len(shown); more > 0 {
		out = fmt.Appendf(out, "%d more: use other words, a server, or a higher limit.\n", more)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// describe writes a tool for the model, with the types of its arguments or without.
func (o *offered) describe(t *tool, types bool, room int) []byte {
	if o.m.Scripts == nil {
		return t.definition(types)
	}
	line := t.signature(types)
	if !types && len(line) > room { // the name is enough for a search by names
		line = []byte("tools[" + rawjson.Quote(t.name) + "]")
	}
	return line
}

// definitions writes the whole definitions of the tools of these names.
func (o *offered) definitions(x *index, names []string) string {
	var out []string
	for _, name := range names {
		if at, ok := x.byName[name]; ok {
			t := &x.tools[at]
			if o.m.Scripts != nil {
				out = append(out, string(t.signature(true)))
				continue
			}
			out = append(out, string(rawjson.SetFirst(t.item, "call_with", []byte(`"`+t.with()+`"`))))
		} else {
			out = append(out, x.unknown(name))
		}
	}
	return strings.Join(out, "\n")
}

func (x *index) has(name string) bool {
	_, has := x.byName[name]
	return has
}

// with returns the meta tool that calls the tool.
func (t *tool) with() string {
	if t.reads {
		return ReadTool
	}
	return CallTool
}

// definition writes what a model needs for a call, with the input schema or without.
func (t *tool) definition(schema bool) []byte {
	d := gjson.ParseBytes(t.item)
	out := append([]byte(`{"name":`), rawjson.Quote(t.name)...)
	out = append(out, `,"call_with":"`+t.with()+`"`...)
	if about := d.Get("description"); about.Str != "" {
		out = append(append(out, `,"description":`...), about.Raw...)
	}
	if in := d.Get("inputSchema"); schema && in.Exists() {
		out = append(append(out, `,"inputSchema":`...), in.Raw...)
	}
	return append(out, '}')
}

// line writes a tool with a line of its description, if possible in at most room bytes.
func (t *tool) line(room int) []byte {
	out := append([]byte(`{"name":`), rawjson.Quote(t.name)...)
	out = append(out, `,"call_with":"`+t.with()+`"`...)
	d := gjson.ParseBytes(t.item)
	about := cmp.Or(d.Get("title").Str, d.Get("annotations.title").Str)
	if text := strings.TrimSpace(d.Get("description").Str); text != "" {
		about, _, _ = strings.Cut(text, "\n")
	}
	about = find.Sentence(about)
	for left := room - len(out) - len(`,"description":""}`); about != ""; about = strings.ToValidUTF8(about[:len(about)/2], "") + "…" {
		if quoted := rawjson.Quote(about); len(quoted)-2 <= left {
			return append(append(append(out, `,"description":`...), quoted...), '}')
		}
		if len(about) < 8 {
			break
		}
	}
	return append(out, '}')
}

// unknown returns a text that says that no tool has that name, and which names are near.
func (x *index) unknown(name string) string {
	text := fmt.Sprintf("There is no tool %.100q.", name)
	var near []string
	if n := validate.Nearest(name, x.names()); n != "" {
		near = append(near, n)
	}
	for _, at := range x.words.Find(name) {
		if n := x.tools[at].name; len(near) < 3 && !slices.Contains(near, n) {
			near = append(near, n)
		}
	}
	if len(near) > 0 {
		text += " There is " + strings.Join(near, ", ") + "."
	}
	return text + " Find tools with " + SearchTools + "."
}

func (x *index) names() []string {
	all := make([]string, len(x.tools))
	for i := range x.tools {
		all[i] = x.tools[i].name
	}
	return all
}

// explain adds to the refusal of a call through CallTool or ReadTool what the model needs for its next try: the input
// schema of the tool if the arguments may be wrong, or the names nearest to an unknown name. A refusal becomes a
// result, so that models read it.
func (o *offered) explain(ctx context.Context, r *bridge.Request, a *jsonrpc.Message) *jsonrpc.Message {
	refused := a.Error != nil && gjson.GetBytes(a.Error, "code").Int() == jsonrpc.CodeInvalidParams
	if !refused && !a.IsError() {
		return a
	}
	x, no, err := o.index(ctx, r)
	if err != nil || no != nil {
		return a
	}
	more := ""
	if at, known := x.byName[r.Name()]; !known {
		more = x.unknown(r.Name())
	} else if schema := rawjson.Get(x.tools[at].item, "inputSchema"); schema != nil && (refused || o.m.Indexes.checks.Verify(schema, rawjson.Get(r.Params, "arguments")) != nil) {
		more = "The tool's inputSchema: " + string(schema)
	}
	switch {
	case refused:
		text := gjson.GetBytes(a.Error, "message").Str
		a.Release()
		return era.Refused(r.From.Modern(), r.Message, strings.TrimSpace(text+"\n"+more))
	case more == "":
		return a
	}
	return a.Replaced(rawjson.Edit(slices.Clone(a.Whole()), func(name, value []byte) []byte {
		if string(name) == "content" && rawjson.IsArray(value) {
			return rawjson.Append(value, '[', []byte(`{"type":"text","text":`+rawjson.Quote(more)+`}`))
		}
		return value
	}))
}

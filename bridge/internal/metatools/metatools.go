// Package metatools offers the tools of an address by search, so that a model need not read the definitions of all
// tools. The list of such an address has SearchTools, ReadTool and CallTool, and the few tools that the operator wants
// to be listed in any case.
//
// [Unwrap] turns a call of CallTool or ReadTool into a call of the tool that the call names. The gateway does so
// where it accepts the call: access rules, filters, limits and reports see the tool itself. [Menu] wraps all the rest
// of the chain; it finds tools in the list that the caller gets from below, so it finds nothing that the caller may
// not use. [Check.Wrap] wraps the chain of one server, and refuses calls through CallTool or ReadTool that the definition
// of their tool does not allow.
package metatools

import (
	"context"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/listing"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/script"
)

// Menu is how an address offers its tools: some are listed, the others are found.
type Menu struct {
	// Servers are the names of the servers at the address that the caller may use, as configured.
	Servers []string
	// Always are patterns of tools that are listed, by the names that clients see at the address.
	Always []string
	// Finds reports whether the tools of a server are found and not listed. nil means that the tools of all servers
	// are.
	Finds func(server string) bool
	// Owner returns the server of a tool at an address of several servers; empty if it is unknown. nil means that the
	// address has one server.
	Owner func(tool string) string
	// Indexes holds the indexes of lists.
	Indexes *Indexes
	// Scripts runs scripts, if the address offers script.Tool in place of ReadTool and CallTool; otherwise nil.
	Scripts Scripts
	// Quota admits the calls of scripts, as the gateway admits those of clients.
	Quota Quota
	// Info is the bridge's serverInfo, for results to modern clients.
	Info []byte
}

// Wrap returns up with the tools as the menu offers them.
func (m *Menu) Wrap(up bridge.Upstream) bridge.Upstream { return &offered{up, m} }

// offered is an Upstream whose tools are found and not listed.
type offered struct {
	bridge.Upstream
	m *Menu
}

// Call answers calls of SearchTools and requests for the list of tools, and adds what the model has to know to
// greetings and to errors of calls through CallTool and ReadTool.
func (o *offered) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch {
	case r.Method == list.Tools.Method():
		return o.list(ctx, r)
	case r.Through == "" && findsTool(r.Message) && (r.Name() == SearchTools || o.m.Scripts != nil):
		if len(o.m.Servers) == 1 && r.Call != nil {
			r.Call.At(o.m.Servers[0])
		}
		if r.Name() == SearchTools {
			return o.search(ctx, r)
		}
		return o.run(ctx, r)
	case r.Method == "initialize" || r.Method == "server/discover":
		a, err := o.Upstream.Call(ctx, r)
		if err == nil && a.Error == nil {
			a = o.greet(a)
		}
		return a, err
	}
	a, err := o.Upstream.Call(ctx, r)
	if err == nil && r.Through != "" {
		a = o.explain(ctx, r, a)
	}
	return a, err
}

// greet adds to a greeting that tools are found by search.
func (o *offered) greet(a *jsonrpc.Message) *jsonrpc.Message {
	names := o.m.names()
	if names == "" {
		return a
	}
	text := "Find tools with " + SearchTools + ": this list has only a few of those of " + names + ". Call those it finds "
	if o.m.Scripts != nil {
		text += "in JavaScript, with " + script.Tool + "."
	} else {
		text += "with " + ReadTool + ", if they only read, or with " + CallTool + "."
	}
	if own := gjson.GetBytes(a.Result, "instructions").Str; own != "" {
		text = own + "\n\n" + text
	}
	result := rawjson.SetFirst(slices.Clone(a.Result), "instructions", []byte(rawjson.Quote(text)))
	if has := rawjson.Get(result, "capabilities"); !gjson.GetBytes(has, "tools").IsObject() {
		result = rawjson.Set(result, "capabilities", rawjson.Set(has, "tools", []byte("{}")))
	}
	return a.Replaced(result)
}

// names returns the servers whose tools are found, as a part of a sentence; empty if there are none.
func (m *Menu) names() string {
	var all []string
	for _, server := range m.Servers {
		if m.Finds == nil || m.Finds(server) {
			all = append(all, server)
		}
	}
	if n := len(all) - 1; n > 0 {
		return strings.Join(all[:n], ", ") + " and " + all[n]
	}
	return strings.Join(all, "")
}

// always reports whether a tool is listed in any case.
func (m *Menu) always(name string) bool {
	return slices.ContainsFunc(m.Always, func(p string) bool { return glob.Match(p, name) })
}

// alwaysLoad keeps clients with a search of their own from hiding a tool behind that search.
const alwaysLoad = "anthropic/alwaysLoad"

// list answers a request for the list of tools. The answer is one page. Its bytes depend on the configuration and on
// the listed tools alone, so that the prompt caches of models hold.
func (o *offered) list(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if c := gjson.GetBytes(r.Params, "cursor"); c.Exists() && c.Type != gjson.Null {
		return jsonrpc.InvalidParams("params.cursor is not a nextCursor of " + r.Method), nil
	}
	items := inRevision(r, o.m.tools())
	if len(o.m.Always) > 0 || o.m.Finds != nil {
		all, no, err := o.all(ctx, r, nil)
		if err != nil || no != nil {
			return no, err
		}
		if o.m.names() == "" { // Finds may learn this only from the list
			items = nil
		}
		for _, item := range all {
			switch name := gjson.GetBytes(item, "name").Str; {
			case o.m.always(name):
				meta := rawjson.Get(item, "_meta")
				if !rawjson.IsObject(meta) {
					meta = []byte("{}")
				}
				item = rawjson.SetFirst(item, "_meta", rawjson.SetFirst(meta, alwaysLoad, []byte("true")))
			case o.m.Finds == nil || o.m.Finds(o.m.Owner(name)):
				continue
			}
			if len(items) > 0 {
				items = append(items, ',')
			}
			items = append(items, item...)
		}
	}
	return o.result(r, append(append([]byte(`"tools":[`), items...), ']'), `"ttlMs":0,"cacheScope":"private"`), nil
}

// result returns an answer of the bridge itself. modern has more members for modern clients.
func (o *offered) result(r *bridge.Request, members []byte, modern string) *jsonrpc.Message {
	out := append([]byte{'{'}, members...)
	if r.From.Modern() {
		out = append(out, `,"resultType":"complete","_meta":{"`+era.KeyServerInfo+`":`...)
		out = append(append(out, o.m.Info...), '}')
		if modern != "" {
			out = append(append(out, ','), modern...)
		}
	}
	return jsonrpc.NewResult(nil, append(out, '}'))
}

// text returns a tool's result that consists of one text.
func (o *offered) text(r *bridge.Request, text string) *jsonrpc.Message {
	return o.result(r, []byte(`"content":[{"type":"text","text":`+rawjson.Quote(text)+"}]"), "")
}

// all returns all tools of the caller's list. first, if not nil, is the first page. no, if not nil, is the error of a
// server.
func (o *offered) all(ctx context.Context, r *bridge.Request, first *jsonrpc.Message) (items [][]byte, no *jsonrpc.Message, err error) {
	_, _ = list.Tools.Pages(func(params []byte) (*jsonrpc.Message, error) {
		a := first
		if first = nil; a == nil {
			a, err = o.Upstream.Call(ctx, listing.Request(r, params, r.From.Modern()))
		}
		if err == nil && a.Error != nil {
			no = &jsonrpc.Message{Error: slices.Clone(a.Error)}
		}
		return a, err
	}, func(page []byte, _, _ bool) {
		list.Tools.Each(page, func(item []byte, _ string) { items = append(items, slices.Clone(item)) })
	})
	return items, no, err
}

// metaTool is a tool of the bridge itself.
type metaTool struct{ name, title, about, schema, annotations string }

// entry returns the entry of a meta tool in the list.
func entry(t metaTool) []byte {
	return []byte(`{"name":"` + t.name + `","title":"` + t.title + `","description":` + rawjson.Quote(t.about) +
		`,"inputSchema":` + t.schema + `,"annotations":` + t.annotations + `,"_meta":{"` + alwaysLoad + `":true}}`)
}

// searchTool returns the entry of SearchTools, with a comma behind. answers is a sentence about its results.
func (m *Menu) searchTool(answers string) []byte {
	return append(entry(metaTool{
		name:  SearchTools,
		title: "Find tools",
		about: "Finds tools of " + m.names() + " by English words for what you want to do. Begin here: your list may lack the tools you need. " + answers,
		schema: `{"type":"object","properties":{` +
			`"query":{"type":"string","description":"What you want to do. Without query and names you get the servers."},` +
			`"server":{"type":"string","description":"Only of this server"},` +
			`"names":{"type":"array","items":{"type":"string"},"maxItems":10,"description":"Whole definitions of these tools"},` +
			`"limit":{"type":"integer","minimum":1,"maximum":50,"default":8}}}`,
		annotations: `{"readOnlyHint":true,"openWorldHint":false}`,
	}), ',')
}

// tools returns the entries of the meta tools.
func (m *Menu) tools() []byte {
	if m.Scripts != nil {
		return m.codeTools()
	}
	out := m.searchTool("Each result names in call_with the tool to call it with.")
	out = append(append(out, entry(metaTool{
		name:        ReadTool,
		title:       "Call a tool that only reads",
		about:       "Calls a tool that " + SearchTools + " has found, and that only reads.",
		schema:      callSchema,
		annotations: `{"readOnlyHint":true}`,
	})...), ',')
	return append(out, entry(metaTool{
		name:        CallTool,
		title:       "Call a tool",
		about:       "Calls a tool that " + SearchTools + " has found. Use " + ReadTool + " if the tool only reads.",
		schema:      callSchema,
		annotations: `{"readOnlyHint":false,"destructiveHint":true}`,
	})...)
}

const callSchema = `{"type":"object","properties":{` +
	`"name":{"type":"string","description":"The name that ` + SearchTools + ` gave"},` +
	`"arguments":{"type":"object","description":"By the tool's inputSchema"}},"required":["name"]}`

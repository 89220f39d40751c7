package inspect

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/config"
)

// bytesPerToken is the approximate size of a token in definitions of tools.
const bytesPerToken = 4

// weight is the part of a model's context that some tools take.
type weight struct{ tools, bytes int }

func (w *weight) add(tool gjson.Result) {
	w.tools++
	w.bytes += len(tool.Raw)
}

func weightOf(tools []gjson.Result) (w weight) {
	for _, tool := range tools {
		w.add(tool)
	}
	return w
}

// weights returns a table of the weights of the tools: those of each server of the file, and those that /mcp lists in
// each mode. listed are the tools that /mcp lists without a mode in its URL.
func (c *client) weights(ctx context.Context, listed []gjson.Result) (string, error) {
	mode, addresses := c.file.ToolsMode, map[string]weight{}
	var all []gjson.Result
	for _, other := range []gateway.ToolsMode{config.ToolsAll, config.ToolsSearch} {
		tools := listed
		if other != mode {
			changed := *c.file
			changed.ToolsMode = other
			if err := c.link.Apply(&changed); err != nil {
				return "", err
			}
			var err error
			if _, tools, err = c.listTools(ctx); err != nil {
				return "", err
			}
		}
		addresses["/mcp?tools="+string(other)] = weightOf(tools)
		if other == config.ToolsAll {
			all = tools
		}
	}
	if mode == "" {
		addresses["/mcp"] = weightOf(listed)
	}
	t := terminal.Table{Head: []string{"LIST", "TOOLS", "BYTES", "TOKENS (ESTIMATE)"}}
	row := func(name string, w weight) {
		t.Add(name, strconv.Itoa(w.tools), strconv.Itoa(w.bytes), strconv.Itoa(w.bytes/bytesPerToken))
	}
	of := ownedBy(c.file, all)
	for _, s := range c.file.Servers {
		row(s.Name, of[s.Name])
	}
	if w := of[""]; w.tools > 0 {
		row("(servers without a prefix)", w)
	}
	for _, name := range []string{"/mcp", "/mcp?tools=all", "/mcp?tools=search"} {
		if w, ok := addresses[name]; ok {
			row(name, w)
		}
	}
	return "\n" + t.Format("", c.errWidth, nil), nil
}

// ownedBy returns the weights of the servers, by the beginnings of the names of their tools. The empty name has the
// tools of several servers without a prefix.
func ownedBy(file *config.Config, tools []gjson.Result) map[string]weight {
	type beginning struct{ text, server string }
	var all []beginning
	var bare []string
	for _, s := range file.Servers {
		if all = append(all, beginning{s.Name + cmp.Or(file.Separator, "__"), s.Name}); s.Prefix == "" {
			bare = append(bare, s.Name)
		} else {
			all = append(all, beginning{s.Prefix, s.Name})
		}
	}
	if len(file.Servers) == 1 { // its tools have their own names
		all, bare = nil, []string{file.Servers[0].Name}
	}
	slices.SortStableFunc(all, func(a, b beginning) int { return len(b.text) - len(a.text) })
	of := map[string]weight{}
	for _, tool := range tools {
		name := tool.Get("name").String()
		owner := ""
		if i := slices.IndexFunc(all, func(b beginning) bool { return strings.HasPrefix(name, b.text) }); i >= 0 {
			owner = all[i].server
		} else if len(bare) == 1 {
			owner = bare[0]
		}
		w := of[owner]
		w.add(tool)
		of[owner] = w
	}
	return of
}

// Package results cuts results of tools that are too long for the context of a model. A caller gets the beginning, and
// reads the rest from the [Store], where the whole is kept for a while.
package results

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/guard"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/cut"
	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Options bound the results of a server's tools. The zero value bounds nothing.
type Options struct {
	// Max is the most bytes of texts that a result keeps, and the same for structured content and for each image or
	// file. 0 means no limit.
	Max setting.Size `yaml:"max"`
}

// Validate returns an error for each value that is out of bounds.
func (o *Options) Validate() error {
	var f guard.Faults
	f.AtLeast("max", int64(o.Max), 1<<10)
	return errors.Join(f...)
}

// Results cuts the results of one server.
type Results struct {
	store  *Store
	rules  atomic.Pointer[rules]
	checks *validate.Cache // of output schemas
}

type rules struct {
	max   int64
	tools map[string]int64 // by patterns of the server's own names
}

// New returns the Results of a server that keeps the whole in the store.
func New(store *Store) *Results {
	r := &Results{store: store, checks: validate.NewCache(16)}
	r.rules.Store(&rules{})
	return r
}

// Set replaces the options for the next results. tools has those of single tools, by patterns of the server's own names.
// If several patterns match a tool, the smallest bound counts.
func (r *Results) Set(o Options, tools map[string]int64) { r.rules.Store(&rules{int64(o.Max), tools}) }

// On reports whether some results are bounded.
func (r *Results) On() bool {
	now := r.rules.Load()
	return now.max > 0 || len(now.tools) > 0 || r.store.usual.Load() > 0
}

// of returns the bound for results of a tool; 0 for none.
func (r *Results) of(tool string) (max int64) {
	now := r.rules.Load()
	for pattern, most := range now.tools {
		if glob.Match(pattern, tool) && (max == 0 || most < max) {
			max = most
		}
	}
	return cmp.Or(max, now.max, r.store.usual.Load())
}

// Wrap returns up with cut results. up has the server's own names of tools.
func (r *Results) Wrap(up bridge.Upstream) bridge.Upstream { return &bounded{up, r} }

// bounded is an Upstream whose results are cut.
type bounded struct {
	bridge.Upstream
	r *Results
}

// Call makes a call, and cuts the result of a tool or of its task.
func (b *bounded) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	a, err := b.Upstream.Call(ctx, r)
	if err != nil || a.Error != nil || r.Method != "tools/call" && r.Method != "tasks/result" {
		return a, err
	}
	max := b.r.of(r.Name())
	if max == 0 || int64(len(a.Result)) <= max || era.ResultType(a) != era.ResultComplete {
		return a, nil
	}
	whole := bytes.Clone(a.Whole())
	c := cutting{max: int(max), left: int(max)}
	if a.IsError() {
		c.left = min(c.left, maxError)
	}
	result := rawjson.Edit(whole, func(name, value []byte) []byte {
		switch n := string(name); {
		case n == "content" && rawjson.IsArray(value):
			return rawjson.EditItems(value, c.item)
		case n == "structuredContent" && len(value) > int(max):
			return b.structured(ctx, r, &c, value)
		}
		return value
	})
	if !c.cut {
		return a, nil
	}
	id := b.r.store.keep(r.From, whole, int(max))
	result = rawjson.Edit(result, func(name, value []byte) []byte {
		if string(name) != "content" {
			return value
		}
		value = rawjson.Append(value, '[', []byte(`{"type":"text","text":`+rawjson.Quote(c.note(id, len(whole)))+`}`))
		if id != "" && r.From.Revision >= era.Rev20250618 { // older clients know no links
			value = rawjson.Append(value, '[', []byte(`{"type":"resource_link","uri":"`+b.r.store.prefix+id+`","name":"the whole result","size":`+fmt.Sprint(len(whole))+`}`))
		}
		return value
	})
	return a.Replaced(result), nil
}

// maxError bounds the text of a failed call, in bytes: its beginning says what failed.
const maxError = 2 << 10

// cutting is one result that is cut.
type cutting struct {
	max   int  // bytes of an image or a file
	left  int  // bytes of text that still fit
	cut   bool // something was cut
	texts int  // how many texts were cut, of which lines may be read
	line  int  // the first line that is not shown, of the first text that was cut
	notes []string
}

// maxExtra bounds the members of an item beside its content, such as its annotations, in bytes.
const maxExtra = 1 << 10

// item cuts an item of content. A text or the text of a file is cut, and any other item that is too long is left out.
func (c *cutting) item(item []byte) []byte {
	d := gjson.ParseBytes(item)
	kind, resource := d.Get("type").Str, d.Get("resource")
	switch text := d.Get("text"); {
	case kind == "text" && text.Type == gjson.String:
		if len(item)-len(text.Raw) > maxExtra {
			c.cut = true
			item = []byte(`{"type":"text","text":` + text.Raw + `}`)
		}
		if len(text.Raw) > c.left {
			return rawjson.SetFirst(item, "text", []byte(rawjson.Quote(c.text(text.Str))))
		}
		c.left -= len(text.Raw)
		return item
	case kind == "resource" && resource.Get("text").Type == gjson.String:
		text = resource.Get("text")
		if len(item)-len(text.Raw) > maxExtra {
			return c.away("file", resource.Get("mimeType").Str, len(item))
		}
		if len(text.Raw) > c.left {
			return rawjson.SetFirst(item, "resource", rawjson.SetFirst([]byte(resource.Raw), "text", []byte(rawjson.Quote(c.text(text.Str)))))
		}
		c.left -= len(text.Raw)
		return item
	}
	if len(item) <= c.max {
		return item
	}
	if kind == "resource" {
		kind = "file"
	}
	return c.away(kind, d.Get("mimeType").Str+resource.Get("mimeType").Str, len(item))
}

// away returns a text in place of an item of size bytes.
func (c *cutting) away(kind, mime string, size int) []byte {
	c.cut = true
	about := strings.TrimSpace(cut.Head([]byte(kind), 100) + " " + cut.Head([]byte(mime), 100))
	return []byte(`{"type":"text","text":` + rawjson.Quote(fmt.Sprintf("(an item of %d bytes is left out: %s)", size, about)) + `}`)
}

// maxDepth bounds the depth of JSON. No message is deeper.
const maxDepth = 1000

// text cuts a text: JSON to JSON, another text behind a line.
func (c *cutting) text(text string) string {
	c.cut = true
	c.texts++
	most := c.left
	c.left = 0
	if begins := strings.TrimSpace(text); begins != "" && (begins[0] == '{' || begins[0] == '[') {
		if doc, ok := jsonrpc.Read([]byte(text), maxDepth); ok {
			out, notes := cut.JSON(doc, most)
			c.notes = append(c.notes, notes...)
			return string(out)
		}
	}
	at := cut.Before([]byte(text), min(most, len(text)))
	if line := strings.LastIndexByte(text[:at], '\n') + 1; line > at/2 {
		at = line
	}
	shown := strings.Count(text[:at], "\n")
	if c.notes = append(c.notes, fmt.Sprintf("showing %d of %d bytes, %d of %d lines", at, len(text), shown, strings.Count(text, "\n")+1)); c.texts == 1 {
		c.line = shown + 1
	}
	return text[:at]
}

// structured cuts structured content. Content that no longer fits the output schema of its tool stays whole: a server
// must send what its schema promises (2025-06-18, tools, output schema), and clients refuse anything else.
func (b *bounded) structured(ctx context.Context, r *bridge.Request, c *cutting, value []byte) []byte {
	doc, ok := jsonrpc.Read(value, maxDepth)
	if !ok {
		return value
	}
	out, notes := cut.JSON(doc, c.max)
	if fits, err := b.fits(ctx, r, out); !fits || err != nil {
		return value
	}
	c.cut = true
	for _, n := range notes {
		c.notes = append(c.notes, "structured content: "+n)
	}
	return out
}

// fits reports whether structured content fits the output schema that the caller's list has for its tool. A tool without
// such a schema promises nothing.
func (b *bounded) fits(ctx context.Context, r *bridge.Request, content []byte) (fits bool, err error) {
	var schema []byte
	whole, _ := list.Tools.Pages(func(params []byte) (*jsonrpc.Message, error) {
		m := jsonrpc.NewRequest(list.Tools.Method(), params)
		if r.From.Modern() {
			m = r.From.Request(list.Tools.Method(), params)
		}
		return b.Upstream.Call(ctx, &bridge.Request{
			Message:  m,
			From:     r.From,
			Header:   r.Header,
			Identity: r.Identity,
		})
	}, func(page []byte, _, _ bool) {
		list.Tools.Each(page, func(item []byte, name string) {
			if name == r.Name() {
				schema = rawjson.Get(item, "outputSchema")
			}
		})
	})
	if schema == nil {
		return whole, nil
	}
	return b.r.checks.Fits(schema, content)
}

// note says what was cut, and how to read on.
func (c *cutting) note(id string, size int) string {
	text := fmt.Sprintf("The result has %d bytes, more than the bridge passes on at once", size)
	if len(c.notes) > 0 {
		text += ": " + strings.Join(c.notes, "; ")
	}
	if id == "" {
		return text + ". The whole is too large to be kept."
	}
	from := ""
	if c.line > 0 {
		from = fmt.Sprintf(`,"from":%d`, c.line)
	}
	return text + fmt.Sprintf(`. Read on with read_result {"id":"%s"%s}, within 30 minutes.`, id, from)
}

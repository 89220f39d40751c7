// Package listing finds what a server's list says about one of its tools. It examines each list once.
package listing

import (
	"context"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// maxLists bounds the examined lists that a Finder remembers.
const maxLists = 64

// Finder finds tools in the lists of one server. T is what the Finder's user needs to know of a tool. A Finder is safe
// for concurrent use.
type Finder[T any] struct {
	read  func(tool gjson.Result) T
	lists *lru.Cache[list.Page, map[string]T] // by tool; for lists of one page that come from a cache
}

// New returns a Finder. read returns what a tool's entry in the list says. The result must not keep a part of the entry.
func New[T any](read func(tool gjson.Result) T) *Finder[T] {
	lists, err := lru.New[list.Page, map[string]T](maxLists)
	if err != nil {
		panic(err) // the size is above zero
	}
	return &Finder[T]{read, lists}
}

// Find lists the tools through up, on behalf of the client of r, and returns what the list says about the tool that r
// calls. modern is the era of the requests. listed reports whether the list has the tool. no is the JSON-RPC error of the
// list. An error means that the client has cancelled r, or that the server cannot be used.
func (f *Finder[T]) Find(ctx context.Context, up bridge.Upstream, r *bridge.Request, modern bool) (tool T, listed bool, no []byte, err error) {
	first, err := up.Call(ctx, Request(r, []byte("{}"), modern))
	if err != nil {
		return tool, false, nil, err
	}
	page := list.PageOf(first)
	tools, known := f.lists.Get(page)
	if known {
		first.Release()
	} else {
		tools = map[string]T{}
		_, more := list.Next(first.Result)
		_, _ = list.Tools.Pages(func(params []byte) (*jsonrpc.Message, error) {
			a := first
			if first = nil; a == nil {
				a, err = up.Call(ctx, Request(r, params, modern))
			}
			if err == nil && a.Error != nil {
				no = slices.Clone(a.Error)
			}
			return a, err
		}, func(page []byte, _, _ bool) {
			list.Tools.Each(page, func(item []byte, name string) {
				tools[strings.Clone(name)] = f.read(gjson.ParseBytes(item)) // name is a part of the whole list
			})
		})
		if page != (list.Page{}) && !more {
			f.lists.Add(page, tools)
		}
	}
	tool, listed = tools[r.Name()]
	return tool, listed, no, err
}

// Request returns the bridge's own request for a page of the list of tools, on behalf of the client of r. modern is the era
// of the request.
func Request(r *bridge.Request, params []byte, modern bool) *bridge.Request {
	m := jsonrpc.NewRequest(list.Tools.Method(), params)
	if modern {
		m = r.From.Request(list.Tools.Method(), params)
	}
	return &bridge.Request{
		Message:  m,
		From:     r.From,
		Header:   r.Header,
		Identity: r.Identity,
	}
}

package metatools

import (
	"context"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// ReadResult is the name of the tool that reads results which were too long to be passed on at once.
const ReadResult = "read_result"

// ResultPrefix begins the URIs of these results.
const ResultPrefix = "bridge://results/"

// Results has the whole of results that were cut.
type Results interface {
	// Read answers a call of ReadResult. args is a JSON object. failed reports that the text is an error.
	Read(from *bridge.Caller, args []byte) (text string, failed bool)
	// Resource returns the members of the result of resources/read; false if the caller has no such result.
	Resource(from *bridge.Caller, uri string) (members []byte, ok bool)
}

// ReadsResult reports whether a request reads a result that was cut.
func ReadsResult(m *jsonrpc.Message) bool {
	return m.Method == "tools/call" && m.Name() == ReadResult || m.Method == "resources/read" && strings.HasPrefix(m.URI(), ResultPrefix)
}

// Reading returns up with ReadResult in its list of tools, and with the results that a caller can read. info is as in
// Menu.
func Reading(up bridge.Upstream, results Results, info []byte) bridge.Upstream {
	return &reading{offered{up, &Menu{Info: info}}, results}
}

type reading struct {
	offered
	results Results
}

// Call answers requests that read results, and adds ReadResult to the last page of the list.
func (o *reading) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	switch {
	case r.Method == "resources/read" && strings.HasPrefix(r.URI(), ResultPrefix):
		members, ok := o.results.Resource(r.From, r.URI())
		if !ok {
			return list.NoResource(r.From.Modern(), r.URI()), nil
		}
		return o.result(r, members, `"ttlMs":0,"cacheScope":"private"`), nil
	case r.Method == "tools/call" && r.Name() == ReadResult && r.Through == "":
		args, ok := object(rawjson.Get(r.Params, "arguments"))
		if !ok {
			return era.Refused(r.From.Modern(), r.Message, "arguments must be an object with the id of a result"), nil
		}
		text, failed := o.results.Read(r.From, args)
		if failed {
			return era.Refused(r.From.Modern(), r.Message, text), nil
		}
		return o.text(r, text), nil
	}
	a, err := o.Upstream.Call(ctx, r)
	if err != nil || a.Error != nil || r.Method != list.Tools.Method() {
		return a, err
	}
	if _, more := list.Next(a.Result); more {
		return a, nil
	}
	return a.Replaced(rawjson.Edit(slices.Clone(a.Whole()), func(name, value []byte) []byte {
		if string(name) == list.Tools.Member() && rawjson.IsArray(value) {
			return rawjson.Append(value, '[', inRevision(r, readResult))
		}
		return value
	})), nil
}

// inRevision returns entries of tools as the client's revision has them.
func inRevision(r *bridge.Request, items []byte) []byte {
	if r.From.Modern() {
		return items
	}
	const begin, end = `{"tools":[`, `]}`
	whole := era.Result(list.Tools.Method(), []byte(begin+string(items)+end), era.LatestLegacy, r.From.Revision)
	return []byte(gjson.GetBytes(whole, "tools").Raw[1 : len(gjson.GetBytes(whole, "tools").Raw)-1])
}

var readResult = []byte(`{"name":"` + ReadResult + `","title":"Read a long result","description":"Reads on in a result that was too long to be shown at once. Its last lines tell the id.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"id":{"type":"string","description":"The id of the result"},` +
	`"from":{"type":"integer","minimum":1,"description":"The first line to show"},` +
	`"lines":{"type":"integer","minimum":1,"description":"How many lines to show at most"},` +
	`"path":{"type":"string","description":"Only this part of JSON, as a JSON pointer such as /items/0/name"},` +
	`"grep":{"type":"string","description":"Only lines that match this regular expression (RE2)"}},"required":["id"]},` +
	`"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false},"_meta":{"` + alwaysLoad + `":true}}`)

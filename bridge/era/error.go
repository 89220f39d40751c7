package era

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Error codes that one era knows and the other does not, or that mean something
// else there.
const (
	codeURLNeeded = -32042 // 2025-11-25 (URL elicitation required)

	// 2026-07-28 keeps these for the specification.
	firstReserved, lastReserved = -32020, -32099
)

// Error is the JSON-RPC error with which a server of revision from answered
// method, for a client of revision to (protocol.md D7, R-162). uri is what
// resources/read was asked for. A modern client whose call can ask for input is
// answered otherwise than with an error when a server needs a URL visited
// (D1.5): that is for the caller to do first.
func Error(method, uri string, raw []byte, from, to string) []byte {
	code, ok := integer(rawjson.Get(raw, "code"))
	if !ok {
		return raw
	}
	if IsModern(to) {
		return modernError(method, uri, raw, code, from)
	}
	read := method == "resources/read"
	switch {
	case code == codeURLNeeded && from >= Rev20251125 && to < Rev20251125:
		return withURLs(recoded(raw, jsonrpc.CodeInternal))
	case !IsModern(from):
	case code == jsonrpc.CodeInvalidParams && read:
		if _, ok := rawjson.Text(rawjson.Get(rawjson.Get(raw, "data"), "uri")); ok {
			return recoded(raw, jsonrpc.CodeNoResource)
		}
	case code == jsonrpc.CodeHeaderMismatch, code == jsonrpc.CodeUnsupportedVersion: // between the server and us
		return hidden(raw, code)
	}
	return raw
}

func modernError(method, uri string, raw []byte, code int, from string) []byte {
	switch {
	case code == jsonrpc.CodeNoResource && method == "resources/read":
		raw = recoded(raw, jsonrpc.CodeInvalidParams)
		data := rawjson.Get(raw, "data")
		switch {
		case uri == "" || rawjson.Given(rawjson.Get(data, "uri")):
			return raw
		case rawjson.IsObject(data):
			return rawjson.Set(raw, "data", rawjson.Set(data, "uri", []byte(rawjson.Quote(uri))))
		}
		return rawjson.Set(raw, "data", original(append([]byte(`"uri":`), rawjson.Quote(uri)...), data))
	case code == jsonrpc.CodeNoResource:
		return hidden(raw, code)
	case code == codeURLNeeded: // its data has the elicitations
		return recoded(raw, jsonrpc.CodeInternal)
	case IsModern(from) && (code == jsonrpc.CodeMissingCapability || code == jsonrpc.CodeUnsupportedVersion): // which are defined
	case lastReserved <= code && code <= firstReserved:
		return hidden(raw, code)
	}
	return raw
}

// hidden is an error of a code that would mislead: the code goes into the data.
func hidden(raw []byte, code int) []byte {
	data := rawjson.Get(raw, "data")
	raw = recoded(raw, jsonrpc.CodeInternal)
	return rawjson.Set(raw, "data", original(strconv.AppendInt([]byte(`"originalCode":`), int64(code), 10), data))
}

// original is data of our own, with the server's beside it.
func original(member, data []byte) []byte {
	out := append([]byte{'{'}, member...)
	if data != nil {
		out = append(append(out, `,"originalData":`...), data...)
	}
	return append(out, '}')
}

func recoded(raw []byte, code int) []byte {
	return rawjson.Set(raw, "code", strconv.AppendInt(nil, int64(code), 10))
}

// integer reads a number, however it is written.
func integer(value []byte) (int, bool) {
	if n, err := strconv.Atoi(string(value)); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(value), 64)
	if n := int(f); err == nil && f > -1e9 && f < 1e9 && float64(n) == f {
		return n, true
	}
	return 0, false
}

// Many and long URLs do not make a message better.
const (
	maxURLs      = 10
	maxURLLength = 2048
)

// withURLs says in the message which URLs are to be visited.
func withURLs(raw []byte) []byte {
	var urls []string
	asked := rawjson.Get(rawjson.Get(raw, "data"), "elicitations")
	rawjson.Walk(asked, '[', func(_, at, end int) bool {
		if u, ok := rawjson.Text(rawjson.Get(asked[at:end], "url")); ok && u != "" && len(u) <= maxURLLength {
			urls = append(urls, u)
		}
		return len(urls) < maxURLs
	})
	if len(urls) == 0 {
		return raw
	}
	message, _ := rawjson.Text(rawjson.Get(raw, "message"))
	if message != "" {
		message += ": "
	}
	return rawjson.Set(raw, "message", []byte(rawjson.Quote(message+strings.Join(urls, " "))))
}

// NotDiscovered answers server/discover where clients of stateless revisions are
// not served, as a server does that has never heard of it. It is no error of
// 2026-07-28: a client that knows both eras would take the server for a modern
// one, and not fall back to initialize (2026-07-28, Versioning).
func NotDiscovered(id []byte) *jsonrpc.Message {
	return jsonrpc.NewError(bytes.Clone(id), jsonrpc.CodeMethodNotFound, "Method not found: server/discover. Revisions up to "+LatestLegacy+" are offered here: begin with initialize", nil)
}

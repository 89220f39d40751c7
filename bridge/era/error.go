package era

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Error codes that only one era has, or that differ in meaning.
const (
	codeURLNeeded = -32042 // 2025-11-25: the client must visit URLs first

	// firstReserved and lastReserved are the range that 2026-07-28 reserves.
	firstReserved, lastReserved = -32020, -32099
)

// Error returns raw, the JSON-RPC error of a server of revision from, as a client of revision to understands it
// (protocol.md D7, R-162). uri is the resource of resources/read. The caller has turned an error that asks the client
// to visit URLs into questions, if the client is modern (D1.5).
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
	case code == jsonrpc.CodeHeaderMismatch, code == jsonrpc.CodeUnsupportedVersion: // these are between the server and the bridge
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
	case code == codeURLNeeded: // its data holds the elicitations
		return recoded(raw, jsonrpc.CodeInternal)
	case IsModern(from) && (code == jsonrpc.CodeMissingCapability || code == jsonrpc.CodeUnsupportedVersion): // both eras define these
	case lastReserved <= code && code <= firstReserved:
		return hidden(raw, code)
	}
	return raw
}

// hidden returns the error with CodeInternal, and with its own code, which would mislead the client, in data.
func hidden(raw []byte, code int) []byte {
	data := rawjson.Get(raw, "data")
	raw = recoded(raw, jsonrpc.CodeInternal)
	return rawjson.Set(raw, "data", original(strconv.AppendInt([]byte(`"originalCode":`), int64(code), 10), data))
}

// original returns data of the bridge that includes the server's data.
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

// integer parses a JSON number that is an integer, in any notation.
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

// maxURLs and maxURLLength bound the URLs in a message; the length is in bytes.
const (
	maxURLs      = 10
	maxURLLength = 2048
)

// withURLs appends the URLs that the user must visit to the error's message.
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

// NotDiscovered returns the error that answers server/discover where the bridge offers only legacy revisions. It is the
// error for an unknown method: after an error of 2026-07-28, a client of both eras would not fall back to initialize
// (2026-07-28, Versioning).
func NotDiscovered(id []byte) *jsonrpc.Message {
	return jsonrpc.NewError(bytes.Clone(id), jsonrpc.CodeMethodNotFound, "Method not found: server/discover. Revisions up to "+LatestLegacy+" are offered here: begin with initialize", nil)
}

package era

import (
	"strings"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Answer returns a client's answer to a question as a server of revision to understands it, or the reason why that is
// impossible. In an answer to sampling, servers before 2025-11-25 accept only one block of content.
func Answer(method string, result []byte, from, to string) ([]byte, *Refusal) {
	if method != "sampling/createMessage" || from <= to || to >= Rev20251125 {
		return result, nil
	}
	ok := true
	result = rawjson.Edit(result, func(name, value []byte) []byte {
		if string(name) != "content" {
			return value
		}
		if value = single(value, to); value == nil {
			ok = false
		}
		return value
	})
	if !ok {
		return nil, &Refusal{Code: jsonrpc.CodeInternal, Message: "the client's answer has content that the server's revision cannot express"}
	}
	return result, nil
}

// single returns the content of an answer as one block, or nil if revision to cannot express it as one.
func single(content []byte, to string) []byte {
	var blocks [][]byte
	if !rawjson.Walk(content, '[', func(_, at, end int) bool {
		blocks = append(blocks, content[at:end])
		return true
	}) {
		blocks = [][]byte{content}
	}
	texts := make([]string, 0, len(blocks))
	for _, b := range blocks {
		switch kind, _ := rawjson.Text(rawjson.Get(b, "type")); {
		case kind == "text":
			t, _ := rawjson.Text(rawjson.Get(b, "text"))
			texts = append(texts, t)
		case kind == "tool_use", kind == "tool_result", kind == "audio" && to < Rev20250326, len(blocks) > 1:
			return nil
		}
	}
	switch len(blocks) {
	case 0:
		return nil
	case 1:
		return blocks[0]
	}
	return textBlock(strings.Join(texts, "\n"))
}

// WellFormedAnswer returns the fault of an answer to a question of that method, or "".
func WellFormedAnswer(method string, result []byte) string {
	if !rawjson.IsObject(result) {
		return "the answer is not an object"
	}
	switch method {
	case "elicitation/create":
		switch action, _ := rawjson.Text(rawjson.Get(result, "action")); action {
		case "accept", "decline", "cancel":
		default:
			return "action must be accept, decline or cancel"
		}
		if content := rawjson.Get(result, "content"); rawjson.Given(content) && !rawjson.IsObject(content) {
			return "content is not an object"
		}
	case "sampling/createMessage":
		switch role, _ := rawjson.Text(rawjson.Get(result, "role")); role {
		case "user", "assistant":
		default:
			return "role is neither user nor assistant"
		}
		if content := rawjson.Get(result, "content"); !rawjson.IsObject(content) && !rawjson.IsArray(content) {
			return "content is neither an object nor an array"
		}
		if _, ok := rawjson.Text(rawjson.Get(result, "model")); !ok {
			return "model is not a string"
		}
	case "roots/list":
		if !rawjson.IsArray(rawjson.Get(result, "roots")) {
			return "roots is not an array"
		}
	}
	return ""
}

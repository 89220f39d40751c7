// Package answer writes answers of the HTTP surface that are no messages of MCP.
package answer

import (
	"net/http"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// WrongMethod answers a request whose method the path does not take.
func WrongMethod(w http.ResponseWriter, allowed string) {
	w.Header().Set("Allow", allowed)
	Refuse(w, http.StatusMethodNotAllowed, "this method is not served here")
}

// Refuse answers a request with a JSON-RPC error.
func Refuse(w http.ResponseWriter, status int, why string) {
	Data(w, status, "application/json", jsonrpc.NewError(nil, jsonrpc.CodeInvalidRequest, why, nil).Append(nil, nil, nil))
}

// Text answers a request with text for people.
func Text(w http.ResponseWriter, status int, text string) {
	Data(w, status, "text/plain; charset=utf-8", []byte(text))
}

// Data answers a request with a body of the media type kind.
func Data(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no answer
}

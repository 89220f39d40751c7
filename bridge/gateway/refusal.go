package gateway

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// dataOf maps kinds of errors to the codes of data.bridge, by which programs learn why a call failed. The first kind
// that matches counts, so a kind precedes the kind that it belongs to.
var dataOf = []struct {
	kind error
	word string
}{
	{bridge.ErrLimited, "rate_limited"},
	{bridge.ErrRevoked, "unauthorized"}, // also a kind of ErrDenied
	{bridge.ErrDenied, "denied"},
	{bridge.ErrOpen, "circuit_open"}, // also a kind of ErrUnavailable
	{bridge.ErrDrained, "draining"},  // also a kind of ErrUnavailable
	{bridge.ErrOverloaded, "overloaded"},
	{bridge.ErrSignIn, "login_required"}, // also a kind of ErrUnavailable
	{bridge.ErrUnavailable, "upstream_unavailable"},
	{bridge.ErrUnsent, "upstream_unavailable"},
	{bridge.ErrTimeout, "upstream_timeout"},
	{bridge.ErrTooLarge, "upstream_too_large"},
	{bridge.ErrInvalid, "upstream_invalid"}, // also a kind of ErrLost
	{bridge.ErrLost, "upstream_lost"},
	{bridge.ErrShutdown, "stopping"},
}

// Refusal returns the JSON-RPC error that tells a client about err (protocol.md D7).
func Refusal(id []byte, err error) *jsonrpc.Message { return refuse(id, err, (*bridge.Error).Told) }

// FullRefusal is Refusal with all details of err, such as the last output of a server's process. Only operators may see
// it.
func FullRefusal(id []byte, err error) *jsonrpc.Message {
	return refuse(id, err, (*bridge.Error).Error)
}

// OwnerLost returns the JSON-RPC error for a call that was in flight when the instance that owned its session ended.
func OwnerLost(id []byte) *jsonrpc.Message {
	return jsonrpc.NewError(id, jsonrpc.CodeInternal, "the instance of the bridge that owned the session ended during the call: whether the server acted on it is unknown", []byte(`{"bridge":"upstream_lost"}`))
}

func refuse(id []byte, err error, text func(*bridge.Error) string) *jsonrpc.Message {
	var data []byte
	for _, d := range dataOf {
		if errors.Is(err, d.kind) {
			data = dataFor(d.word, err)
			break
		}
	}
	message, code := "internal error of the bridge", jsonrpc.CodeInternal
	if errors.Is(err, bridge.ErrDenied) {
		code = jsonrpc.CodeInvalidRequest
	}
	e, ours := errors.AsType[*bridge.Error](err)
	switch {
	case ours:
		message = text(e)
	case errors.Is(err, bridge.ErrOverloaded):
		message = "the bridge is overloaded: too many requests are in flight; try again later"
	case errors.Is(err, bridge.ErrShutdown):
		message = "the bridge is stopping; try again later"
	case errors.Is(err, bridge.ErrIdle), errors.Is(err, bridge.ErrEnded):
		message = "the session has ended"
	case errors.Is(err, bridge.ErrCancelled), errors.Is(err, context.Canceled):
		message = "the request was cancelled"
	case errors.Is(err, bridge.ErrUnknownServer):
		message = "no such server"
	}
	return jsonrpc.NewError(id, code, message, data)
}

// dataFor returns the data of the JSON-RPC error: the code word, the pause before the next try if known, and the
// server, if the bridge refused the call or there is a pause.
func dataFor(word string, err error) []byte {
	data := `{"bridge":"` + word + `"`
	e, ours := errors.AsType[*bridge.Error](err)
	if ours && e.Server != "" && (e.After > 0 || !strings.HasPrefix(word, "upstream_")) {
		data += `,"server":` + rawjson.Quote(e.Server)
	}
	if ours && e.After > 0 {
		data += `,"retryAfterMs":` + strconv.FormatInt(int64((e.After+time.Millisecond-1)/time.Millisecond), 10)
	}
	return []byte(data + "}")
}

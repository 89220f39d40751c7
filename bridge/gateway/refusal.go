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

// dataOf says what data.bridge is, by which a client's program can tell why a
// call failed. The first kind that fits counts.
var dataOf = []struct {
	kind error
	word string
}{
	{bridge.ErrLimited, "rate_limited"},
	{bridge.ErrRevoked, "unauthorized"}, // before what it is a kind of
	{bridge.ErrDenied, "denied"},
	{bridge.ErrOpen, "circuit_open"}, // before what it is a kind of
	{bridge.ErrDrained, "draining"},  // likewise
	{bridge.ErrOverloaded, "overloaded"},
	{bridge.ErrSignIn, "login_required"}, // before what it is a kind of
	{bridge.ErrUnavailable, "upstream_unavailable"},
	{bridge.ErrUnsent, "upstream_unavailable"},
	{bridge.ErrTimeout, "upstream_timeout"},
	{bridge.ErrTooLarge, "upstream_too_large"},
	{bridge.ErrInvalid, "upstream_invalid"}, // before what it is a kind of
	{bridge.ErrLost, "upstream_lost"},
	{bridge.ErrShutdown, "stopping"},
}

// Refusal makes the JSON-RPC error that a client gets for err (protocol.md D7).
func Refusal(id []byte, err error) *jsonrpc.Message { return refuse(id, err, (*bridge.Error).Told) }

// FullRefusal is Refusal for who runs the bridge: with all that is known, such as what the process
// of a server wrote last.
func FullRefusal(id []byte, err error) *jsonrpc.Message {
	return refuse(id, err, (*bridge.Error).Error)
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
		message = "the bridge is overloaded: too many requests are under way; try again later"
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

// dataFor is the data of an error. Of what the bridge itself refuses it names
// the server, and it says when to try again, where that is known.
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

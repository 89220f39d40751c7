package era

import (
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/tidwall/gjson"
)

// Refused returns the answer to a call of a tool that the bridge refuses. modern is the era of the call. The answer is a
// result, so that models read why. A legacy call that expects a task gets an error.
func Refused(modern bool, m *jsonrpc.Message, why string) *jsonrpc.Message {
	if gjson.GetBytes(m.Params, "task").Exists() && !modern {
		return jsonrpc.InvalidParams(why)
	}
	result := `"content":[{"type":"text","text":` + rawjson.Quote(why) + `}],"isError":true}`
	if modern {
		m := jsonrpc.NewResult([]byte("0"), []byte(`{"resultType":"complete",`+result))
		return m.Clone() // parsed, so that wrappers find its type
	}
	return jsonrpc.NewResult(nil, []byte("{"+result))
}

package list_test

import (
	"testing"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/internal/list"
)

// The subject of a completion is unambiguous, or the request is refused: no reader may take it for another.
func TestReference(t *testing.T) {
	for _, test := range []struct{ params, want string }{
		{`{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a"}}`, `{"argument":{"name":"a"},"ref":{"name":"p","type":"ref/prompt"}}`},
		{`{"ref":{"name":"p","name":"q"}}`, `{"ref":{"name":"q"}}`},
		{`{"ref":{"name":"p","Name":"q","URI":"x:"},"REF":{"name":"r"}}`, `{"ref":{"name":"p"}}`},
		{`{"ref":{"uri":"x:{y}"}}`, `{"ref":{"uri":"x:{y}"}}`},
		{`{"ref":{"name":"p","uri":"x:"}}`, ""},
		{`{"ref":null}`, ""},
		{`{"ref":"p"}`, ""},
		{`{}`, ""},
	} {
		ref, no := list.ReferenceOf(bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":`+test.params+`}`))
		switch {
		case test.want == "":
			bridgetest.Contains(t, bridgetest.Text(no), `"code":-32602`, "params.ref must be an object")
		case no != nil:
			t.Errorf("%s: %s", test.params, bridgetest.Text(no))
		case ref.URI != "":
			if got := string(ref.Located().Params); got != test.want {
				t.Errorf("%s: %s goes on", test.params, got)
			}
		default:
			if got := string(ref.Named(ref.Name).Params); got != test.want {
				t.Errorf("%s: %s goes on", test.params, got)
			}
		}
	}
}

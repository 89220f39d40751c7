package filter

import (
	"context"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// listed is a server that lists one tool, for everybody.
type listed struct{ bridge.Upstream }

func (listed) Call(context.Context, *bridge.Request) (*jsonrpc.Message, error) {
	return jsonrpc.NewResult([]byte("1"), []byte(`{"resultType":"complete","tools":[{"name":"a"}],"ttlMs":5000,"cacheScope":"public"}`)), nil
}

// What a server lists for everybody is one caller's where there are access rules: what
// stands between must not show it to others (I-059).
func TestIdentityIsPrivate(t *testing.T) {
	for scope, grants := range map[string]*Grants{
		"public":  nil,
		"private": NewGrants(map[string]Grant{"all": {}, "some": {Allow: []string{"a"}}}),
	} {
		up := New("one", Lists{}, grants).Granted(listed{})
		for _, who := range []string{"all", "some/https://idp.example.com#ann"} {
			for _, method := range []string{"tools/list", "resources/list"} {
				r := &bridge.Request{Message: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`), From: &bridge.Caller{Principal: who, Revision: era.LatestModern}}
				m, err := up.Call(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				bridgetest.Contains(t, bridgetest.Text(m), `"cacheScope":"`+scope+`"`, `"name":"a"`, `"ttlMs":5000`)
			}
		}
	}
}

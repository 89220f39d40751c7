package rest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
)

// The adapter answers the handshake itself: the API gets no request.
func TestHandshake(t *testing.T) {
	api := newAPI(t)
	g := connect(t, adapter(t, api.pets(), Options{}), nil).Server()
	if g.Revision != "2025-11-25" || g.Modern() || string(g.Capabilities) != `{"tools":{"listChanged":true}}` {
		t.Errorf("Server() = %s with %s", g.Revision, g.Capabilities)
	}
	want := `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},` +
		`"serverInfo":{"name":"pets","title":"Pets","version":"1.2.3"},"instructions":"Everything about pets."}`
	if string(g.Result) != want {
		t.Errorf("Result = %s\nwant     %s", g.Result, want)
	}
	if api.count() > 0 {
		t.Errorf("the API was asked %s", api.last(t))
	}
}

func TestMethods(t *testing.T) {
	up := connect(t, adapter(t, newAPI(t).pets(), Options{}), nil)
	if got := ask(t, up, "ping", "{}").Raw; got != "{}" {
		t.Errorf("ping: %s", got)
	}
	for _, test := range []struct {
		method, params string
		code           int64
	}{
		{"resources/list", "{}", -32601},
		{"prompts/list", "{}", -32601},
		{"logging/setLevel", `{"level":"debug"}`, -32601},
		{"tools/call", `{"name":"nothing"}`, -32602},
		{"tools/call", `{"name":"listPets","arguments":[]}`, -32602},
		{"tools/call", `{"name":"search_tools","arguments":{}}`, -32602},
		{"tools/list", `{"cursor":"x"}`, -32602},
	} {
		if got := gjson.GetBytes(raw(t, up, test.method, test.params).Error, "code").Int(); got != test.code {
			t.Errorf("%s %s: error %d, want %d", test.method, test.params, got, test.code)
		}
	}
}

func TestCalls(t *testing.T) {
	api := newAPI(t)
	up := connect(t, adapter(t, api.pets(), Options{Forward: []string{"X-Tenant"}}), nil)
	if got, want := names(t, up), "listPets addPet getPet deletePet watchEvents slow"; got != want {
		t.Errorf("tools = %s\nwant    %s", got, want)
	}
	for _, test := range []struct{ name, tool, args, request, text string }{
		{"query", "listPets", `{"limit":7,"kind":"cat"}`, "GET /pets?limit=7&kind=cat X-Api-Key=top-secret-key", `12345678901234567890`},
		{"coerced", "getPet", `{"id":"9"}`, "GET /pets/9 X-Api-Key=top-secret-key", `"Rex"`},
		{"body", "addPet", `{"body":{"name":"Rex","age":1.50}}`, `POST /pets X-Api-Key=top-secret-key {"name":"Rex","age":1.50}`, `"POST"`},
		{"problem", "getPet", `{"id":404}`, "GET /pets/404 X-Api-Key=top-secret-key", "404 Not Found from GET /pets/404\nNo such pet"},
		{"no arguments", "listPets", `null`, "GET /pets X-Api-Key=top-secret-key", `"Rex"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, _ := call(t, up, test.tool, test.args)
			if got := api.last(t); got != test.request {
				t.Errorf("request = %s\nwant      %s", got, test.request)
			}
			if !strings.Contains(text, test.text) {
				t.Errorf("text = %s\nwant %s in it", text, test.text)
			}
		})
	}
	before := api.count()
	text, isError := call(t, up, "listPets", `{"limit":1000,"kinds":"cat"}`)
	if !isError || !strings.Contains(text, "limit") || !strings.Contains(text, "did you mean") && !strings.Contains(text, "kind") || api.count() > before {
		t.Errorf("wrong arguments: %q, want all that is wrong, and no request", text)
	}
}

// Headers of the request win; those of the handshake apply if it has none.
func TestForward(t *testing.T) {
	api := newAPI(t)
	a := adapter(t, api.pets(), Options{Forward: []string{"X-Tenant"}})
	up := connect(t, a, nil, http.Header{"X-Tenant": {"first"}})
	m := adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"listPets"}}`)
	for _, test := range []struct {
		header http.Header
		want   string
	}{
		{nil, "GET /pets X-Api-Key=top-secret-key X-Tenant=first"},
		{http.Header{"X-Tenant": {"own"}, "X-Trace": {"secret"}}, "GET /pets X-Api-Key=top-secret-key X-Tenant=own"},
		{http.Header{}, "GET /pets X-Api-Key=top-secret-key"},
	} {
		if _, err := up.Call(t.Context(), &bridge.Request{Message: m, Header: test.header}); err != nil {
			t.Fatal(err)
		}
		if got := api.last(t); got != test.want {
			t.Errorf("%v: request %s, want %s", test.header, got, test.want)
		}
	}
}

// the parts of a stream are progress under the client's token, before the answer.
func TestProgress(t *testing.T) {
	up := connect(t, adapter(t, newAPI(t).pets(), Options{}), nil)
	back := &adaptertest.Client{}
	m := adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"watchEvents","_meta":{"progressToken":"t\u00e9"}}}`)
	got, err := up.Call(t.Context(), &bridge.Request{Message: m, Back: back})
	if err != nil {
		t.Fatal(err)
	}
	said := back.Said()
	want := []string{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t\u00e9","progress":1,"message":"one"}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t\u00e9","progress":2,"message":"two"}}`,
	}
	if strings.Join(said, "\n") != strings.Join(want, "\n") {
		t.Errorf("progress = %q\nwant       %q", said, want)
	}
	if text := gjson.GetBytes(got.Result, "content.0.text").String(); text != "one\ntwo" {
		t.Errorf("text = %q", text)
	}
}

// A cancelled call ends with its request to the API. So does a call of a closed connection.
func TestCancel(t *testing.T) {
	api := newAPI(t)
	a := adapter(t, api.pets(), Options{})
	slow := adaptertest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}`)
	begin := func(ctx context.Context, up bridge.Upstream) <-chan error {
		n := api.count()
		ended := make(chan error, 1)
		go func() {
			_, err := up.Call(ctx, &bridge.Request{Message: slow})
			ended <- err
		}()
		eventually(t, "the request", func() bool { return api.count() > n })
		return ended
	}
	up := connect(t, a, nil)
	why := errors.New("taken back")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := begin(ctx, up)
	cancel(why)
	if err := <-ended; !errors.Is(err, why) {
		t.Errorf("Call = %v, want the context's cause", err)
	}
	ended = begin(t.Context(), up)
	up.Close(context.Background())
	if err := <-ended; !errors.Is(err, bridge.ErrLost) {
		t.Errorf("Call = %v, want ErrLost", err)
	}
	if _, err := up.Call(t.Context(), &bridge.Request{Message: slow}); !errors.Is(err, bridge.ErrUnsent) {
		t.Errorf("Call of a closed connection = %v, want ErrUnsent", err)
	}
	ended = begin(t.Context(), connect(t, a, nil))
	a.Close()
	if err := <-ended; !errors.Is(err, bridge.ErrLost) {
		t.Errorf("Call = %v, want ErrLost", err)
	}
	if _, err := a.Open(t.Context(), &bridge.Caller{}, nil); !errors.Is(err, bridge.ErrUnavailable) {
		t.Errorf("Open of a closed adapter = %v, want ErrUnavailable", err)
	}
}

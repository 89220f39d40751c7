package streamable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Whatever a POST of the stateless era says in its headers and in its _meta, it gets one answer, with its id and with the
// status that goes with the code; and no request gets to a server whose headers do not say what its body does (R-067 to R-079,
//
func FuzzModernPost(f *testing.F) {
	const caps = `"io.modelcontextprotocol/clientCapabilities":{}`
	for _, s := range [][6]string{
		{"tools/call", modernMeta, `"name":"echo","arguments":1`, "2026-07-28", "tools/call", "echo"},
		{"tools/call", modernMeta, `"name":"caf\u00e9"`, "2026-07-28", "tools/call", "=?base64?Y2Fmw6k=?="},
		{"tools/call", modernMeta, `"name":"caf\u00e9"`, "2026-07-28", "tools/call", "café"},
		{"tools/call", modernMeta, `"arguments":{}`, "2026-07-28", "tools/call", "x"},
		{"tools/list", `"_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28",` + caps + `}`, ``, "2026-07-28", "tools/list", ""},
		{"tools/list", `"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01",` + caps + `}`, ``, "2099-01-01", "tools/list", ""},
		{"tools/list", `"_meta":{"io.modelcontextprotocol/protocolVersion":7,` + caps + `}`, ``, "7", "tools/list", ""},
		{"tools/list", `"_meta":[]`, ``, "2026-07-28", "tools/list", ""},
		{"resources/read", modernMeta, `"uri":"x:y"`, "2026-07-28", "resources/read", "x:y"},
		{"tasks/get", modernMeta, `"taskId":"a","taskId":"b"`, "2026-07-28", "tasks/get", "b"},
		{"initialize", modernMeta, ``, "2026-07-28", "initialize", ""},
		{"server/discover", modernMeta, ``, "2025-11-25", "server/discover", ""},
		{"ping", modernMeta, ``, "", "", ""},
	} {
		f.Add(s[0], s[1], s[2], s[3], s[4], s[5])
	}
	h := newModernRig(f, gateway.Options{}, Options{})
	f.Fuzz(func(t *testing.T, method, meta, params, version, methodHeader, nameHeader string) {
		for _, slow := range []string{"wait", "late", "linger", "large", "flood", "steps", "fail", "listen", `\u`} {
			if strings.Contains(method, slow) || strings.Contains(params, slow) && slow != `\u` || strings.Contains(meta, "progressToken") && strings.Contains(params, slow) {
				return // these take their time, on purpose
			}
		}
		if params != "" && meta != "" {
			params += ","
		}
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"f","method":%q,"params":{%s%s}}`, method, params, meta)
		m, err := jsonrpc.Parse([]byte(body))
		if err != nil || !isModern(m, map[string][]string{versionHeader: {version}}) {
			return
		}
		r := httptest.NewRequest("POST", "/mcp", strings.NewReader(body))
		r.Header["Content-Type"] = []string{"application/json"}
		for name, value := range map[string]string{versionHeader: version, era.HeaderMethod: methodHeader, era.HeaderName: nameHeader} {
			if value != "" {
				r.Header[name] = []string{value}
			}
		}
		h.m.Got()
		o := &once{ResponseRecorder: httptest.NewRecorder()}
		h.d.Serve("fake", o, r)
		got := o.Body.Bytes()
		if o.headers != 1 || !json.Valid(got) || !bytes.Contains(got, []byte(`"id":"f"`)) || o.Header().Get(sessionHeader) != "" {
			t.Fatalf("%s = %d answers, %d %q", body, o.headers, o.Code, got)
		}
		want := map[int64]int{0: 200, -32700: 400, -32600: 400, -32020: 400, -32021: 400, -32022: 400, -32601: 404}
		if code := gjson.GetBytes(got, "error.code").Int(); code != -32602 && o.Code != want[code] {
			t.Fatalf("%s = %d %s", body, o.Code, got)
		}
		if len(h.m.Got()) == 0 {
			return
		}
		var said struct {
			Method string
			Params struct {
				Name, URI, TaskID any
				Meta              map[string]any `json:"_meta"`
			}
		}
		if err := json.Unmarshal([]byte(body), &said); err != nil {
			t.Fatal(err)
		}
		_, bad := said.Params.Meta[era.KeyCapabilities].(map[string]any)
		if said.Params.Meta[era.KeyVersion] != "2026-07-28" || version != "2026-07-28" || !bad || !era.EqualHeader(methodHeader, said.Method) {
			t.Fatalf("%s with %q, %q got to the server", body, version, methodHeader)
		}
		if name, ok := said.Params.Name.(string); ok && said.Method == "tools/call" && !era.EqualHeader(nameHeader, name) {
			t.Fatalf("%s with name %q got to the server", body, nameHeader)
		}
	})
}

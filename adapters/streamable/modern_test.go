package streamable

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// modernRig is a modern server behind the bridge.
type modernRig struct {
	*rig
	m *wiretest.Modern
}

// runModern runs f in a bubble.
func runModern(t *testing.T, f func(t *testing.T, m *modernRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newModernRig(t, gateway.Options{}, Options{})) })
}

func newModernRig(t testing.TB, bo gateway.Options, o Options) *modernRig {
	m := &wiretest.Modern{}
	return &modernRig{publish(t, wiretest.Both{Legacy: &wiretest.Server{}, Modern: m}, bo, o), m}
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"tok"}`

// modernBody makes a request; params are members, or empty.
func modernBody(id, method, params string) string {
	if params != "" {
		params += ","
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s%s}}`, id, method, params, modernMeta)
}

// modernCall makes a call of a tool.
func modernCallBody(id, tool, args string) string {
	return modernBody(id, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, tool, args))
}

// modernHeaders returns what a client has to send with a body, and what else is
// given.
func modernHeaders(body string, more ...string) []string {
	h := []string{versionHeader, "2026-07-28", "Mcp-Method", gjson.Get(body, "method").Str}
	for _, member := range []string{"name", "uri", "taskId"} {
		if v := gjson.Get(body, "params."+member); v.Exists() {
			h = append(h, "Mcp-Name", v.Str)
		}
	}
	return append(h, more...)
}

// send makes a request as it should be.
func (m *modernRig) send(body string, more ...string) *wiretest.Reply {
	return m.Do("POST", "/mcp", body, modernHeaders(body, more...)...)
}

// The table of protocol.md C3: what decides which era a request is of. A notification
// of the era cancels nothing, least of all what another client has under the same id.
func TestEraOfRequest(t *testing.T) {
	const (
		keyed   = `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{` + modernMeta + `}}`
		keyless = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
		note    = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1%s}}`
		answer  = `{"jsonrpc":"2.0","id":7,"result":{}}`
		initial = `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}%s}}`
		rev     = "2026-07-28"
	)
	ok := []string{versionHeader, rev, "Mcp-Method", "tools/list"}
	tests := []struct {
		name, method, body string
		header             []string
		session            string // the revision of a session that the request names; none if empty
		status             int
		want               string // in the body
	}{
		{"key", "POST", keyed, ok, "", 200, `"id":7,"result":{"resultType":"complete"`},
		{"key, session ignored (R-081)", "POST", keyed, ok, "2025-11-25", 200, `"resultType":"complete"`},
		{"key, unknown session and event ignored (R-081)", "POST", keyed, append([]string{sessionHeader, "none", resumeHeader, "p-1"}, ok...), "", 200, `"resultType":"complete"`},
		{"key, legacy header", "POST", keyed, []string{versionHeader, "2025-11-25"}, "2025-11-25", 400, `"id":7,"error":{"code":-32020`},
		{"key, no header", "POST", keyed, nil, "2025-11-25", 400, `"id":7,"error":{"code":-32020`},
		{"key that is no text", "POST", strings.Replace(keyed, `"2026-07-28"`, "20260728", 1), ok, "", 400, `"id":7,"error":{"code":-32602`},
		{"empty key", "POST", strings.Replace(keyed, `"2026-07-28"`, `""`, 1), ok, "", 400, `"id":7,"error":{"code":-32602`},
		{"key written with escapes", "POST", strings.Replace(keyed, `protocol/protocolV`, `protocol\/protocol\u0056`, 1), ok, "", 200, `"resultType":"complete"`},
		{"key twice", "POST", strings.Replace(keyed, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`, 1), ok, "", 400, `"id":7,"error":{"code":-32602`},
		{"initialize with the key (R-095)", "POST", fmt.Sprintf(initial, ","+modernMeta), []string{versionHeader, rev, "Mcp-Method", "initialize"}, "", 404, `"id":7,"error":{"code":-32601`},
		{"notification with the key (R-183)", "POST", fmt.Sprintf(note, ","+modernMeta), nil, "", 202, ""},
		{"notification with the key in a session", "POST", fmt.Sprintf(note, ","+modernMeta), nil, "2025-11-25", 202, ""},
		{"notification, modern header (R-183)", "POST", fmt.Sprintf(note, ""), []string{versionHeader, rev}, "", 202, ""},
		{"notification, modern header and method (R-183)", "POST", fmt.Sprintf(note, ""), []string{versionHeader, rev, "Mcp-Method", "x"}, "", 202, ""},
		{"request without the key, modern header", "POST", keyless, []string{versionHeader, rev, "Mcp-Method", "ping"}, "", 400, `"id":7,"error":{"code":-32602`},
		{"request without the key, modern header, session", "POST", keyless, []string{versionHeader, rev}, "2025-11-25", 400, `"id":7,"error":{"code":-32602`},
		{"request without the key, header of a later revision", "POST", keyless, []string{versionHeader, "2099-01-01"}, "", 400, `"id":7,"error":{"code":-32602`},
		{"initialize without the key", "POST", fmt.Sprintf(initial, ""), nil, "", 200, `"protocolVersion":"2025-11-25"`},
		{"initialize without the key, modern header (R-095)", "POST", fmt.Sprintf(initial, ""), []string{versionHeader, rev}, "", 200, `"protocolVersion":"2025-11-25"`},
		{"session", "POST", keyless, nil, "2025-11-25", 200, `{"jsonrpc":"2.0","id":7,"result":{}}`},
		{"answer in a session", "POST", answer, nil, "2025-11-25", 202, ""},
		{"answer without a session", "POST", answer, nil, "", 400, "-32600"},
		{"answer, modern header (R-082)", "POST", answer, []string{versionHeader, rev}, "", 400, "-32600"},
		{"answer in a session, modern header (R-082)", "POST", answer, []string{versionHeader, rev}, "2025-11-25", 400, "-32600"},
		{"answer with the key (R-082)", "POST", `{"jsonrpc":"2.0","id":7,"result":{},"params":{` + modernMeta + `}}`, nil, "2025-11-25", 400, "-32600"},
		{"batch", "POST", "[" + keyless + "]", nil, "2025-03-26", 200, `[{"jsonrpc":"2.0","id":7,"result":{}}]`},
		{"batch with a key (R-082)", "POST", "[" + keyless + "," + keyed + "]", nil, "2025-03-26", 400, "-32600"},
		{"batch, modern header (R-082)", "POST", "[" + keyless + "]", []string{versionHeader, rev}, "2025-03-26", 400, "-32600"},
		{"batch without a session", "POST", "[" + keyed + "]", ok, "", 400, "-32600"},
		{"nothing", "POST", keyless, nil, "", 400, `"id":7,"error":{"code":-32600`},
		{"get, modern header (R-080)", "GET", "", []string{versionHeader, rev}, "", 405, "-32600"},
		{"get in a session, modern header (R-080)", "GET", "", []string{versionHeader, rev}, "2025-11-25", 405, "-32600"},
		{"delete, modern header (R-080)", "DELETE", "", []string{versionHeader, rev}, "2025-11-25", 405, "-32600"},
		{"not JSON", "POST", "{", ok, "", 400, "-32700"},
		{"not JSON-RPC", "POST", `{"id":7,"params":{` + modernMeta + `}}`, ok, "", 400, `"id":7,"error":{"code":-32600`},
		{"content type", "POST", keyed, append([]string{"Content-Type", "text/plain"}, ok...), "", 415, "-32600"},
		{"accept", "POST", keyed, append([]string{"Accept", "application/xml"}, ok...), "", 406, "-32600"},
		{"accept without stream", "POST", keyed, append([]string{"Accept", "application/json"}, ok...), "", 200, `"id":7,"result":{"resultType":"complete","tools":[`},
		{"accept without json", "POST", keyed, append([]string{"Accept", "text/event-stream"}, ok...), "", 200, `data: {"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","tools":[`},
		{"listen without stream", "POST", strings.Replace(keyed, "tools/list", listen, 1), append([]string{"Accept", "application/json"}, ok...), "", 406, `"id":7,"error":{"code":-32600,"message":"Accept must list text/event-stream`},
	}
	runModern(t, func(t *testing.T, m *modernRig) {
		call := m.send(modernCallBody("1", "wait", "{}")) // which no notification of the table cancels
		synctest.Wait()
		for _, test := range tests {
			header := test.header
			if test.session != "" {
				header = append([]string{sessionHeader, m.begin(test.session).id}, header...)
			}
			r := m.Do(test.method, "/mcp", test.body, header...).Wait()
			if r.Status() != test.status || !strings.Contains(r.Body(), test.want) || test.want == "" && r.Body() != "" {
				t.Errorf("%s: %d %q, want %d with %q", test.name, r.Status(), r.Body(), test.status, test.want)
			}
			if made := r.Header("Mcp-Session-Id") != ""; made != strings.Contains(test.want, "protocolVersion") {
				t.Errorf("%s: a session id: %t", test.name, made)
			}
			if allow := r.Header("Allow"); (test.status == 405) != (allow == "POST, OPTIONS") {
				t.Errorf("%s: Allow is %q", test.name, allow)
			}
		}
		if got := m.m.Cancelled(); len(got) > 0 {
			t.Errorf("cancelled %q", got)
		}
		m.m.Answer(`{"resultType":"complete"}`)
		if body := call.Wait().Body(); !strings.Contains(body, `"id":1,"result"`) {
			t.Errorf("the call = %q", body)
		}
	})
}

// The checks of a request, in their order (protocol.md B7; ). No request that is refused
// by them gets to the server.
func TestLadder(t *testing.T) {
	good := modernCallBody(`"x"`, "echo", "1")
	cut := func(body string, keys ...string) string {
		for _, k := range keys {
			body = strings.Replace(body, `"io.modelcontextprotocol/`+k+`"`, `"x"`, 1)
		}
		return body
	}
	const jose = `"jos\u00e9 \u2713"`
	named := func(name string) string { return strings.Replace(good, `"echo"`, name, 1) }
	task := modernBody("1", "tasks/get", `"taskId":"t 1"`)
	tests := []struct {
		name, body string
		header     []string // instead of what is right
		status     int
		want       string
	}{
		{"fine", good, nil, 200, `{"jsonrpc":"2.0","id":"x","result":{"resultType":"complete"`},
		{"white space around values (R-074)", good, []string{versionHeader, " 2026-07-28\t", "Mcp-Method", "  tools/call ", "Mcp-Name", "\techo "}, 200, `"structuredContent":1`},
		{"names of headers in another case (R-074)", good, []string{"MCP-PROTOCOL-VERSION", "2026-07-28", "mcp-method", "tools/call", "mCP-nAME", "echo"}, 200, `"structuredContent":1`},
		{"no client info (R-068)", good, nil, 200, `"structuredContent":1`},
		// B7.6
		{"version header missing (R-071)", good, []string{versionHeader, ""}, 400, `"id":"x","error":{"code":-32020`},
		{"version header different (R-070)", good, []string{versionHeader, "2025-11-25"}, 400, `"id":"x","error":{"code":-32020`},
		{"version header different from one that is not served", strings.Replace(good, "2026-07-28", "2099-01-01", 1), nil, 400, `"code":-32020`},
		{"version header different, all else wrong too", cut(modernBody("1", "ping", ""), "clientCapabilities"), []string{versionHeader, "2025-11-25", "Mcp-Method", "x"}, 400, `"code":-32020`},
		{"body without version (R-067)", cut(good, "protocolVersion"), nil, 400, `"id":"x","error":{"code":-32602`},
		{"no _meta (R-067)", `{"jsonrpc":"2.0","id":5,"method":"tools/list"}`, nil, 400, `"id":5,"error":{"code":-32602`},
		// B7.7
		{"version not served (R-069)", strings.Replace(cut(good, "clientCapabilities"), "2026-07-28", "2099-01-01", 1), []string{versionHeader, "2099-01-01", "Mcp-Method", "x"}, 400,
			`"id":"x","error":{"code":-32022,"message":"unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2099-01-01"}}`},
		{"legacy version (R-069)", strings.Replace(good, "2026-07-28", "2025-11-25", 1), []string{versionHeader, "2025-11-25"}, 400, `"requested":"2025-11-25"`},
		// B7.8
		{"no capabilities (R-067)", cut(modernBody("1", "ping", ""), "clientCapabilities"), []string{"Mcp-Method", ""}, 400, `"id":1,"error":{"code":-32602`},
		{"capabilities that are no object", strings.Replace(good, `clientCapabilities":{}`, `clientCapabilities":[]`, 1), nil, 400, `"code":-32602`},
		{"level", strings.Replace(good, modernMeta[9:], `"io.modelcontextprotocol/logLevel":"loud",`+modernMeta[9:], 1), nil, 400, `"code":-32602`},
		// B7.9
		{"ping (R-079)", modernBody("1", "ping", ""), []string{"Mcp-Method", "x"}, 404, `"id":1,"error":{"code":-32601`},
		{"initialize (R-095)", modernBody("1", "initialize", ""), nil, 404, `"id":1,"error":{"code":-32601`},
		{"setLevel (R-079)", modernBody("1", "logging/setLevel", `"level":"info"`), nil, 404, `"code":-32601`},
		{"subscribe (R-079)", modernBody("1", "resources/subscribe", `"uri":"x:y"`), nil, 404, `"code":-32601`},
		{"unsubscribe (R-079)", modernBody("1", "resources/unsubscribe", `"uri":"x:y"`), nil, 404, `"code":-32601`},
		// B7.10
		{"method header missing (R-072)", good, []string{"Mcp-Method", ""}, 400, `"id":"x","error":{"code":-32020`},
		{"method header in another case (R-074)", good, []string{"Mcp-Method", "TOOLS/CALL"}, 400, `"code":-32020`},
		{"method header different (R-072)", good, []string{"Mcp-Method", "tools/list"}, 400, `"code":-32020`},
		{"name header missing (R-073)", good, []string{"Mcp-Name", ""}, 400, `"id":"x","error":{"code":-32020`},
		{"name header different (R-073)", good, []string{"Mcp-Name", "Echo"}, 400, `"code":-32020`},
		{"name header of a resource different (R-073)", modernBody("1", "resources/read", `"uri":"x:y"`), []string{"Mcp-Name", "x:z"}, 400, `"code":-32020`},
		{"name header of a task different", task, []string{"Mcp-Name", "t 2"}, 400, `"code":-32020`},
		{"name header without a name", modernBody("1", "tools/call", ""), []string{"Mcp-Name", "echo"}, 400, `"code":-32020`},
		{"name header of two tasks", modernBody("1", "tasks/get", `"taskId":"a","taskId":"b"`), []string{"Mcp-Name", "a"}, 400, `"code":-32020`},
		{"name in base64 (R-075)", named(jose), []string{"Mcp-Name", "=?base64?am9zw6kg4pyT?="}, 200, `no such tool`},
		{"name in bad base64 (R-075)", good, []string{"Mcp-Name", "=?base64?ZWNobw=?="}, 400, `"code":-32020`},
		{"name as raw UTF-8 (R-185)", named(jose), []string{"Mcp-Name", "jos\u00e9 \u2713"}, 200, `no such tool`},
		{"name that is a number", named("5"), []string{"Mcp-Name", ""}, 200, `"id":"x","error":{"code":-32602`},
		// F
		{"a header too long (R-178)", good, []string{"Mcp-Param-X", strings.Repeat("x", maxHeader+1)}, 431, `"id":"x"`},
		{"a header that is long", good, []string{"Mcp-Param-X", strings.Repeat("x", maxHeader)}, 200, `"structuredContent":1`},
	}
	runModern(t, func(t *testing.T, m *modernRig) {
		for _, test := range tests {
			m.m.Got()
			r := m.send(test.body, test.header...).Wait()
			if r.Status() != test.status || !strings.Contains(r.Body(), test.want) {
				t.Errorf("%s: %d %q, want %d with %q", test.name, r.Status(), r.Body(), test.status, test.want)
			}
			if got := m.m.Got(); (len(got) > 0) != (test.status == 200) {
				t.Errorf("%s: the server got %q", test.name, got)
			}
		}
		two := m.twice(good, "Mcp-Name", "echo", "other") // which of them would a proxy have read?
		if !strings.HasPrefix(two, "HTTP/1.1 400") || !strings.Contains(two, "-32020") {
			t.Errorf("two names: %q", two)
		}
		if got := m.twice(good, "Mcp-Name", "echo", "echo"); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("a name twice: %q", got)
		}
	})
}

// twice makes a request in which a header stands twice, and returns the
// response as it is.
func (m *modernRig) twice(body, name, one, other string) string {
	conn := m.Dial()
	defer conn.Close()
	header := slices.DeleteFunc(slices.Collect(slices.Chunk(modernHeaders(body), 2)), func(h []string) bool { return h[0] == name })
	header = append(header, []string{name, one}, []string{name, other}, []string{"Connection", "close"})
	go writePost(conn, body, slices.Concat(header...))
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

// What an answer's status says (protocol.md B6, B15, C4, D7; ).
func TestModernAnswerStatus(t *testing.T) {
	fail := func(code int) string {
		return modernCallBody("7", "fail", fmt.Sprintf(`{"code":%d,"message":"m","data":{"d":1}}`, code))
	}
	find := modernBody("7", "server/discover", "")
	tests := []struct {
		name, faulty, body string
		status             int
		want               string
	}{
		{"result", "", modernCallBody("7", "echo", "[1]"), 200, `"structuredContent":[1]`},
		{"discover", "", find, 200, `"supportedVersions":["2026-07-28","2025-11-25"`},
		{"method unknown to the server (R-079)", "", modernBody("7", "x/y", ""), 404, `-32601`},
		{"-32601", "", fail(-32601), 404, `"code":-32601`},
		{"-32602 is no fault of the envelope", "", fail(-32602), 200, `"code":-32602`},
		{"-32603", "", fail(-32603), 200, `"code":-32603`},
		{"-32020 is about headers of the bridge's", "", fail(-32020), 200, `"code":-32603`},
		{"-32021", "", fail(-32021), 400, `"code":-32021,"message":"m","data":{"d":1}`},
		{"-32022", "", fail(-32022), 400, `"code":-32022`},
		{"another code", "", fail(-31000), 200, `"code":-31000`},
		{"lost", "lost", modernCallBody("7", "echo", "1"), 200, `"code":-32603`},
		{"unavailable", "unavailable", modernCallBody("7", "echo", "1"), 200, `{"bridge":"upstream_unavailable"}`},
		{"timeout", "timeout", modernCallBody("7", "echo", "1"), 200, `{"bridge":"upstream_timeout"}`},
		{"overloaded", "overloaded", modernCallBody("7", "echo", "1"), 503, `{"bridge":"overloaded"}`},
		{"limited", "limited", modernCallBody("7", "echo", "1"), 429, `{"bridge":"rate_limited","server":"fake","retryAfterMs":1500}`},
		{"listen limited", "limited", modernBody("7", listen, `"notifications":{}`), 429, `"code":-32603`},
		{"circuit open", "open", modernCallBody("7", "echo", "1"), 503, `{"bridge":"circuit_open","server":"fake","retryAfterMs":10000}`},
		{"busy server", "busy", modernCallBody("7", "echo", "1"), 200, `{"bridge":"upstream_unavailable","server":"fake","retryAfterMs":90000}`},
		{"discover limited (R-188)", "limited", find, 503, `"retryAfterMs":1500`},
		{"discover, circuit open (R-188)", "open", find, 503, `{"bridge":"circuit_open"`},
		{"discover, busy server (R-188)", "busy", find, 503, `{"bridge":"upstream_unavailable"`},
		{"discover lost (R-188)", "lost", find, 502, `"code":-32603`},
		{"discover unavailable (R-188)", "unavailable", find, 502, `{"bridge":"upstream_unavailable"}`},
		{"discover timeout (R-188)", "timeout", find, 504, `{"bridge":"upstream_timeout"}`},
		{"discover overloaded (R-188)", "overloaded", find, 503, `{"bridge":"overloaded"}`},
		{"listen without a filter", "", modernBody("7", listen, ""), 200, `"code":-32602`},
		{"listen overloaded", "overloaded", modernBody("7", listen, `"notifications":{}`), 503, `"code":-32603`},
	}
	runModern(t, func(t *testing.T, h *modernRig) {
		for _, test := range tests {
			h.m.Faulty(test.faulty, 0)
			r := h.send(test.body).Wait()
			m, err := jsonrpc.Parse([]byte(r.Body()))
			if r.Status() != test.status || !strings.Contains(r.Body(), test.want) || err != nil || string(m.ID) != "7" {
				t.Errorf("%s: %d %q, want %d with %q and its id", test.name, r.Status(), r.Body(), test.status, test.want)
			}
			after := ""
			if test.status == 503 || test.status == 429 {
				after = map[string]string{"limited": "2", "open": "10", "busy": "90"}[test.faulty]
				if after == "" {
					after = "5"
				}
			}
			if r.Header("Retry-After") != after {
				t.Errorf("%s: Retry-After is %q, want %q", test.name, r.Header("Retry-After"), after)
			}
		}
		// All that was said before the code is known is that it takes long: discover waits for it.
		h.m.Faulty("lost", 40*time.Second)
		slow, call := h.send(find), h.send(modernCallBody("8", "echo", "1"))
		wiretest.Advance(39 * time.Second)
		synctest.Wait()
		if slow.Status() != 0 || call.Status() != 200 {
			t.Errorf("after 39 s: discover %d, a call %d, want nothing and 200", slow.Status(), call.Status())
		}
		if slow.Wait().Status() != 502 {
			t.Errorf("discover = %d %s, want 502", slow.Status(), slow.Body())
		}
		if e := call.Wait().Events(); len(e) != 1 || !strings.Contains(e[0].Data, `"id":8,"error":{"code":-32603`) {
			t.Errorf("a call = %+v", e)
		}
	})
}

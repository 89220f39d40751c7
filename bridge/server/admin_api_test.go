package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/bridge/server/internal/admin"
	"github.com/mcp-bridge/bridge/bridge/server/internal/metrics"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// read makes a request of the API, and reads its answer if it is the one that is wanted.
func (r *rig) read(method, path, body, key string, want int, into any) {
	r.t.Helper()
	w := r.ask(method, "/ui/api/v1/"+path, body, "X-API-Key", key)
	if w.Code != want {
		r.t.Errorf("%s %s = %d %s, want %d", method, path, w.Code, w.Body, want)
	} else if err := json.Unmarshal(w.Body.Bytes(), into); err != nil && into != nil {
		r.t.Errorf("%s %s: %v: %s", method, path, err, w.Body)
	}
}

// The metrics as JSON are those of /metrics, and each caller sees those of its servers.
func TestAdminMetrics(t *testing.T) {
	run(t, operators, []string{"one", "two"}, func(t *testing.T, r *rig) {
		for _, at := range []string{"/one/mcp", "/two/mcp"} {
			_, id := r.as(devKey, at, "", initialize)
			r.as(devKey, at, id, call("1", "echo"))
		}
		for _, tc := range []struct {
			query, key   string
			has, servers string // a metric, and the servers of those that are shown
		}{
			{"", opsKey, "mcp_bridge_build_info", ",one,two"},
			{"", oneKey, "mcp_bridge_calls_total", "one"},
			{"?name=mcp_bridge_call_&server=two", sinKey, "mcp_bridge_call_duration_seconds", "two"},
			{"?server=one", oneKey, "mcp_bridge_calls_total", "one"},
		} {
			var got struct{ Metrics []metrics.Family }
			r.read("GET", "metrics"+tc.query, "", tc.key, 200, &got)
			servers, has := map[string]bool{}, false
			for _, f := range got.Metrics {
				has = has || f.Name == tc.has
				for _, v := range f.Values {
					servers[v.Labels["server"]] = true
				}
			}
			if all := strings.Join(slices.Sorted(maps.Keys(servers)), ","); !has || all != tc.servers || tc.query != "" && tc.key == sinKey && len(got.Metrics) != 1 {
				t.Errorf("%q for %s: %d metrics of the servers %q, with %s: %t", tc.query, tc.key, len(got.Metrics), all, tc.has, has)
			}
		}
	})
}

// listing is a server that lists its tools in pages.
type listing struct {
	*wiretest.Modern
	fails bool
}

func (l *listing) Open(ctx context.Context, from *bridge.Caller, rest bridge.Client) (bridge.Upstream, error) {
	_, err := l.Modern.Open(ctx, from, rest)
	return l, err
}

func (l *listing) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if r.Method != "tools/list" {
		return l.Modern.Call(ctx, r)
	}
	r.Back.Notify(jsonrpc.NewNotification("notifications/tools/list_changed", nil)) // on the stream of this request
	if l.fails {
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "out of tools", nil), nil
	}
	result := `"nextCursor":"2","tools":[{"name":"echo"}]`
	if gjson.GetBytes(r.Params, "cursor").String() == "2" {
		result = `"tools":[{"name":"read_file","inputSchema":{"type":"object","properties":{"path":{"type":"string"},"head":{"type":"integer","maximum":9}},"required":["path"]}},` +
			`{"name":"odd","inputSchema":{"type":"object","properties":{"a":{"$ref":"https://example.com/a"}}}}]`
	}
	return jsonrpc.NewResult(nil, []byte(`{"resultType":"complete",`+result+`,"ttlMs":0,"cacheScope":"private"}`)), nil
}

// Arguments are compared with the schema of a tool, for who may look, and the tool is not called (O-021).
func TestAdminArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config.Default()
		c.Servers = []config.Server{config.DefaultServer("one", ""), config.DefaultServer("two", "")}
		c.Servers[0].Cache.Off = true // each request reaches the server
		operators(&c)
		c.Access = append(c.Access, config.Access{Name: "far", Token: newKey, Servers: []string{"two"}})
		c.Viewers = append(c.Viewers, "far")
		l := &listing{Modern: &wiretest.Modern{}}
		r := &rig{t: t}
		r.s = build(&c, slog.New(slog.DiscardHandler), func(*server, *config.Server) backend {
			return backend{Adapter: l, transport: func() string { return "stdio" }}
		})
		defer r.s.Close(context.Background())
		for _, tc := range []struct{ tool, arguments, want string }{
			{"read_file", `{"path":"a"}`, `{"ok":true,"faults":[]}`},
			{"read_file", `{"path":"a","head":5}`, `{"ok":true,"faults":[]}`},
			{"read_file", `{"path":5}`, `path`},
			{"read_file", `{"path":"a","head":"5"}`, `head`}, // which would be made right only where the bridge validates
			{"read_file", `{"path":"a","head":10}`, `head`},
			{"read_file", `{"path":"a","heat":1}`, `heat`},
			{"read_file", `{}`, `path`},
			{"read_file", `[]`, `object`},
			{"echo", `{}`, `{"ok":true,"faults":[]}`},
		} {
			var got admin.ArgumentsChecked
			r.read("POST", "arguments", fmt.Sprintf(`{"server":"one","tool":%q,"arguments":%s}`, tc.tool, tc.arguments), sinKey, 200, &got)
			text, _ := json.Marshal(got)
			if good := strings.Contains(tc.want, "ok"); got.OK != good || good != (len(got.Faults) == 0) || !strings.Contains(string(text), tc.want) {
				t.Errorf("%s %s: %s, want %s", tc.tool, tc.arguments, text, tc.want)
			}
		}
		for _, tc := range []struct {
			body, key string
			status    int
			want      string
		}{
			{`{"server":"one","tool":"read_fil","arguments":{}}`, sinKey, http.StatusNotFound, "did you mean read_file?"},
			{`{"server":"none","tool":"x","arguments":{}}`, sinKey, http.StatusNotFound, "server of that name"},
			{`{"server":"one","arguments":{}}`, sinKey, http.StatusBadRequest, "server and tool are missing"},
			{`{"server":"one","tool":"x","args":{}}`, sinKey, http.StatusBadRequest, "args"},
			{`{"server":"one","tool":"odd","arguments":{}}`, sinKey, http.StatusUnprocessableEntity, "schema"},
			{`{"server":"one","tool":"echo","arguments":{}}`, newKey, http.StatusForbidden, "may not use the server"},
			{`{"server":"one","tool":"echo","arguments":{}}`, devKey, http.StatusForbidden, "viewers"},
		} {
			w := r.ask("POST", "/ui/api/v1/arguments", tc.body, "X-API-Key", tc.key)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("%s = %d %s, want %d with %q", tc.body, w.Code, w.Body, tc.status, tc.want)
			}
		}
		l.fails = true
		w := r.ask("POST", "/ui/api/v1/arguments", `{"server":"one","tool":"echo","arguments":{}}`, "X-API-Key", opsKey)
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "out of tools") {
			t.Errorf("a server that does not list: %d %s", w.Code, w.Body)
		}
	})
}

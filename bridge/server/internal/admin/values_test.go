package admin

import (
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/setting"
)

const valuesFile = `listen: 127.0.0.1:${PORT}
session_idle: 31m
admin: [ops]
access:
  - { name: ops, token: "${KEY}" }
per_principal: { calls: 9 }
log_level: warn
allowed_hosts: [a.example.com, b.example.com]
servers:
  files:
    stdio: { command: npx, args: [s3cr3t-a], env: { TOKEN: "${KEY}" } }
    limits:
      calls: ${CALLS}
    cache: off
    share: principal
    tools: { deny: [a] }
  web:
    http: https://example.com/s3cr3t0a8d7f6g5h4j/mcp
    breaker: { failures: 3 }
allowed_origins: ["https://${HOST}"]
`

// asked returns the settings that somebody asks for, by key.
func asked(t *testing.T, c *config.Config, server string, pending ...string) map[string]Value {
	t.Helper()
	out, err := ShowValues(&Call{Query: url.Values{"server": {server}}}, c, pending)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := json.Marshal(out); strings.Contains(string(text), "s3cr3t") {
		t.Errorf("a secret is shown: %s", text)
	}
	all := map[string]Value{}
	for _, v := range out.(*ValuesShown).Values {
		if _, twice := all[v.Key]; twice {
			t.Errorf("%s is there twice", v.Key)
		}
		all[v.Key] = v
	}
	return all
}

// Settings are shown as they count: with the line of the file, the variables that it names, the
// flag that has set them, or as defaults; those too which what uses them fills in. Each key is
// there, and no secret.
func TestValues(t *testing.T) {
	env := map[string]string{"PORT": "8123", "KEY": "s3cr3t-0123456789abcdef", "CALLS": "64", "HOST": "S3CR3T-host.example.com"}
	c, err := config.Parse("bridge.yaml", []byte(valuesFile), func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	c.Flags, c.LogLevel = map[string]string{"log_level": "--log-level"}, "debug"
	own, files, web := asked(t, c, "", "drain", "cluster.redis"), asked(t, c, "files"), asked(t, c, "web")
	for _, tc := range []struct {
		of   map[string]Value
		want Value
	}{
		{own, Value{Key: "listen", Value: "127.0.0.1:${PORT}", From: FromFile, Line: 1, Variables: []string{"PORT"}}},
		{own, Value{Key: "session_idle", Value: "31m0s", From: FromFile, Line: 2}},
		{own, Value{Key: "admin", Value: "ops", From: FromFile, Line: 3}},
		{own, Value{Key: "access", Value: "ops", From: FromFile, Line: 4}},
		{own, Value{Key: "per_principal.calls", Value: "9", From: FromFile, Line: 6}},
		{own, Value{Key: "per_principal.sessions", Value: "1000", From: FromDefault}},
		{own, Value{Key: "per_principal.rate", Value: "none", From: FromDefault}},
		{own, Value{Key: "log_level", Value: "debug", From: FromFlag, Flag: "--log-level"}},
		{own, Value{Key: "allowed_hosts", Value: "a.example.com, b.example.com", From: FromFile, Line: 8}},
		{own, Value{Key: "allowed_origins", Value: "1 entry", From: FromFile, Line: 20, Variables: []string{"HOST"}}},
		{own, Value{Key: "drain", Value: "10s", From: FromDefault, Waits: true}},
		{own, Value{Key: "cluster.redis", Value: "none", From: FromDefault, Waits: true}},
		{own, Value{Key: "max_message", Value: "16MiB", From: FromDefault}},
		{own, Value{Key: "console", Value: "off", From: FromDefault}},
		{files, Value{Key: "stdio.command", Value: "npx", From: FromFile, Line: 11}},
		{files, Value{Key: "stdio.args", Value: "1 entry", From: FromFile, Line: 11}},
		{files, Value{Key: "stdio.env", Value: "TOKEN", From: FromFile, Line: 11}},
		{files, Value{Key: "stdio.stop_term", Value: "3s", From: FromDefault}},
		{files, Value{Key: "limits.calls", Value: "64", From: FromFile, Line: 13, Variables: []string{"CALLS"}}},
		{files, Value{Key: "limits.queue", Value: "64", From: FromFile, Line: 12}}, // as many as calls
		{files, Value{Key: "limits.wait", Value: "30s", From: FromDefault}},
		{files, Value{Key: "cache", Value: "off", From: FromFile, Line: 14}},
		{files, Value{Key: "share", Value: "principal", From: FromFile, Line: 15}},
		{files, Value{Key: "idle_stop", Value: "10m0s", From: FromDefault}}, // with that share
		{files, Value{Key: "tools", Value: "set", From: FromFile, Line: 16}},
		{files, Value{Key: "prompts", Value: "none", From: FromDefault}},
		{files, Value{Key: "prefix", Value: "files__", From: FromDefault}},
		{files, Value{Key: "offer", Value: "all", From: FromDefault}},
		{files, Value{Key: "breaker.failures", Value: "5", From: FromDefault}},
		{web, Value{Key: "http.url", Value: "https://example.com/***/mcp", From: FromFile, Line: 18}},
		{web, Value{Key: "http.transport", Value: "auto", From: FromDefault}},
		{web, Value{Key: "breaker.failures", Value: "3", From: FromFile, Line: 19}},
		{web, Value{Key: "breaker.pause", Value: "5s", From: FromDefault}},
		{web, Value{Key: "cache.lists", Value: "1m, 5s", From: FromDefault}},
		{web, Value{Key: "cache.bytes", Value: "16777216", From: FromDefault}},
		{web, Value{Key: "idle_stop", Value: "off", From: FromDefault}},
		{web, Value{Key: "share", Value: "session", From: FromDefault}},
	} {
		if got := tc.of[tc.want.Key]; !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s is %+v, want %+v", tc.want.Key, got, tc.want)
		}
	}
	kinds := []string{"http", "sse", "rest"} // files is of another one
	for of, keys := range map[string][]string{"": setting.Keys(reflect.TypeFor[config.Config]()), "files": setting.Keys(reflect.TypeFor[config.Server]())} {
		all := asked(t, c, of)
		for _, key := range keys {
			shown := slices.ContainsFunc(sortedKeys(all), func(k string) bool { return k == key || strings.HasPrefix(k, key+".") })
			if hides := key == "servers" || of != "" && slices.Contains(kinds, key); shown == hides {
				t.Errorf("%q: %s is shown: %t", of, key, shown)
			}
		}
	}
	if _, err := ShowValues(&Call{Query: url.Values{"server": {"none"}}}, c, nil); err == nil {
		t.Error("a server that is not there has settings")
	}
}

func sortedKeys(all map[string]Value) (keys []string) {
	for k := range all {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// A file of another program has other keys: its settings have no line.
func TestValuesOfOthers(t *testing.T) {
	c, err := config.Parse("claude.json", []byte(`{"mcpServers": {"Files": {"command": "npx", "args": ["s3cr3t"]}}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := asked(t, c, "files")["stdio.command"]; got.From != FromFile || got.Value != "npx" {
		t.Errorf("%+v", got)
	}
}

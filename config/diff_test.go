package config

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/guard/approve"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/limits"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// two is a configuration of two servers.
func two() *Config {
	c := Default()
	for _, name := range []string{"one", "two"} {
		s := DefaultServer(name, "")
		s.Stdio = &stdio.Config{Command: "true"}
		c.Servers = append(c.Servers, s)
	}
	c.Access = []Access{{Name: "ops", Token: "0123456789abcdef"}, {Name: "dev", Token: "abcdef0123456789", Servers: []string{"one"}}}
	return &c
}

// Each key with a plain value has the effect of its tag, and the values are shown if they are no secrets (O-058).
func TestDiffKeys(t *testing.T) {
	for path, of := range map[string]func(*Config) reflect.Value{
		"":             func(c *Config) reflect.Value { return reflect.ValueOf(c).Elem() },
		"servers.one.": func(c *Config) reflect.Value { return reflect.ValueOf(&c.Servers[0]).Elem() },
	} {
		for _, f := range setting.Fields(of(two()).Type()) {
			was, now := two(), two()
			value := of(now).FieldByIndex(f.Index)
			if f.Keyed() && !slices.Contains([]Effect{EffectLive, EffectRenew, EffectNext, EffectRestart}, Effect(f.Effect)) {
				t.Errorf("%s%s has the effect %q", path, f.Key, f.Effect)
			}
			if !f.Keyed() || !change(value) {
				continue
			}
			from, to := fmt.Sprint(of(was).FieldByIndex(f.Index)), fmt.Sprint(value)
			want := fmt.Sprintf("%s%s %s → %s (%s)", path, f.Key, cmp.Or(from, "none"), cmp.Or(to, "none"), f.Effect)
			if value.Kind() == reflect.Slice || value.Kind() == reflect.String && !f.Shown {
				want = fmt.Sprintf("%s%s (%s)", path, f.Key, f.Effect)
			}
			if got := lines(Diff(was, now)); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if got := len(Diff(was, Running(was, now, Diff(was, now)))) > 0; got != (Effect(f.Effect) != EffectRestart) {
				t.Errorf("%s%s: a changed value applies at once: %v", path, f.Key, got)
			}
		}
	}
}

// change changes a plain value, and reports false for another one.
func change(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.String:
		v.SetString("x")
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.String {
			return false
		}
		v.Set(reflect.Append(v, reflect.ValueOf("x").Convert(v.Type().Elem())))
	default:
		return false
	}
	return true
}

// Every other key has a case with the path and the effect of its change (O-058).
func TestDiff(t *testing.T) {
	tested := map[string]bool{}
	for _, tc := range []struct {
		key    string // of the file, or of a server behind a dot
		change func(c *Config)
		want   string // the changes, a line each
	}{
		{"oauth", func(c *Config) { c.OAuth = []OAuth{{Issuer: "https://a"}} }, "oauth (restart)"},
		{"access", func(c *Config) { c.Access = append(c.Access, Access{Name: "staff", Users: Words{"a"}}) }, "access (restart)"},
		{"access", func(c *Config) { c.Access = []Access{{Name: "staff", Users: Words{"a"}}, c.Access[0]} }, "access (restart)\naccess.dev there → removed (live)"},
		{"access", func(c *Config) {
			c.Access = []Access{{Name: "ops", Users: Words{"a"}}, c.Access[1], {Name: "ci", Token: "x"}}
		}, "access (restart)\naccess.ops there → removed (live)\naccess.ci none → added (live)"},
		{"access", func(c *Config) { c.Access = []Access{{Name: "staff", Users: Words{"a"}}} }, "access (restart)"},
		{"trusted_proxies", func(c *Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }, "trusted_proxies (live)"},
		{"tls", func(c *Config) { c.TLS = TLS{"a", "b"} }, "tls.cert_file (restart)\ntls.key_file (restart)"},
		{"access", func(c *Config) { c.Access = c.Access[:1] }, "access.dev there → removed (live)"},
		{"access", func(c *Config) { c.Access = append(c.Access, Access{Name: "ci", Token: "x"}) }, "access.ci none → added (live)"},
		{"access", func(c *Config) { c.Access[0].Token = "another" }, "access.ops.token (live)"},
		{"access", func(c *Config) { c.Access[1].Servers = nil; c.Access[1].Tools.Deny = []string{"a"} }, "access.dev.servers (live)\naccess.dev.tools.deny (live)"},
		{"access", func(c *Config) { c.Access[1].Operator = true }, "access.dev.operator false → true (live)"},
		{"access", func(c *Config) { slices.Reverse(c.Access) }, ""},
		{"access", func(c *Config) { c.Access = nil }, "access (restart)"},
		{"per_principal", func(c *Config) { c.PerPrincipal.Calls = 5 }, "per_principal.calls default (512) → 5 (live)"},
		{"per_principal", func(c *Config) { c.PerPrincipal.Rate = limits.Rate{PerSecond: 2} }, "per_principal.rate (live)"},
		{"access_log", func(c *Config) { c.AccessLog.To = "stderr" }, "access_log.to (live)"},
		{"cluster", func(c *Config) { c.Cluster.Redis = "redis://:s3cr3t@a" }, "cluster.redis (restart)"},
		{"cluster", func(c *Config) { c.Cluster.Listen = ":8810" }, "cluster.listen none → :8810 (restart)"},
		{"results", func(c *Config) { c.Results.Max = 1 << 20 }, "results.max 0B → 1MiB (live)"},
		{"groups", func(c *Config) { c.Groups = map[string]Group{"dev": {Servers: []string{"one"}}} }, "groups (live)"},
		{"servers", func(c *Config) {
			c.Servers = append(c.Servers, DefaultServer("three", ""), DefaultServer("four", ""))
		}, "servers.three none → added (live)\nservers.four none → added (live)"},
		{"servers", func(c *Config) { c.Servers[1].Name = "three" }, "servers.two there → removed (live)\nservers.three none → added (live)"},
		{"servers", func(c *Config) { c.Servers = c.Servers[1:] }, "servers.one there → removed (live)\nservers 2 → 1 (next)"},
		{"servers", func(c *Config) { slices.Reverse(c.Servers) }, "servers order → another order (live)"},
		{".stdio", func(c *Config) { c.Servers[0].Stdio.Env = map[string]string{"TOKEN": "s3cr3t"} }, "servers.one.stdio.env (renew)"},
		{".stdio", func(c *Config) { c.Servers[0].Stdio.Args = []string{"s3cr3t"} }, "servers.one.stdio.args (renew)"},
		{".stdio", func(c *Config) { c.Servers[0].Stdio.StopTerm = time.Minute }, "servers.one.stdio.stop_term default (3s) → 1m0s (next)"},
		{".http", func(c *Config) {
			c.Servers[0].Stdio, c.Servers[0].HTTP = nil, &remote.Config{URL: "http://s3cr3t"}
		}, "servers.one.stdio (renew)\nservers.one.http (renew)"},
		{".sse", func(c *Config) { c.Servers[0].SSE = &remote.Config{} }, "servers.one.sse (renew)"},
		{".rest", func(c *Config) { c.Servers[0].Rest = &rest.Config{} }, "servers.one.rest (renew)"},
		{".forward", func(c *Config) { c.Servers[0].Forward = []bridge.Forward{{From: "A", To: "A"}} }, "servers.one.forward (next)"},
		{".scopes", func(c *Config) { c.Servers[0].Scopes.Tools = map[string]Words{"*": {"a"}} }, "servers.one.scopes.tools (live)"},
		{".scopes", func(c *Config) { c.Servers[0].Scopes.All = Words{"a"} }, "servers.one.scopes.all (live)"},
		{".identity", func(c *Config) { c.Servers[0].Identity = map[string]string{"X-User": "sub"} }, "servers.one.identity (renew)"},
		{".prefix", func(c *Config) { c.Servers[0].Prefix = "" }, "servers.one.prefix one__ → none (live)"},
		{".approve", func(c *Config) { c.Servers[0].Approve = []approve.Rule{{Tools: []string{"a"}}} }, "servers.one.approve (live)"},
		{".results", func(c *Config) { c.Servers[0].Results.Max = 1 << 20 }, "servers.one.results.max 0B → 1MiB (live)"},
		{".tools", func(c *Config) { c.Servers[0].Tools.Deny = []string{"a"} }, "servers.one.tools (live)"},
		{".prompts", func(c *Config) { c.Servers[0].Prompts.Allow = []string{"a"} }, "servers.one.prompts (live)"},
		{".resources", func(c *Config) { c.Servers[0].Resources.Rename = map[string]string{"a": "b"} }, "servers.one.resources (live)"},
		{".cache", func(c *Config) { c.Servers[0].Cache.Stale = time.Minute }, "servers.one.cache.stale default (1h0m0s) → 1m0s (live)"},
		{".breaker", func(c *Config) { c.Servers[0].Breaker = breaker.Options{Off: true} }, "servers.one.breaker (live)"},
		{".breaker", func(c *Config) { c.Servers[0].Breaker.Pause = time.Minute }, "servers.one.breaker.pause default (5s) → 1m0s (live)"},
		{".limits", func(c *Config) { c.Servers[0].Limits.Calls = 5 }, "servers.one.limits.calls default (512) → 5 (live)"},
		{".limits", func(c *Config) { c.Servers[0].Limits.Wait = 2 * time.Second }, "servers.one.limits.wait default (30s) → 2s (live)"},
		{".limits", func(c *Config) { c.Servers[0].Limits.Queue = 2 }, "servers.one.limits.queue default (as calls) → 2 (live)"},
		{".cache", func(c *Config) { c.Servers[0].Cache.Lists = time.Second }, "servers.one.cache.lists default (1m for rest, else 5s) → 1s (live)"},
		{".cache", func(c *Config) { c.Servers[0].Cache.Bytes = 30 << 10 }, "servers.one.cache.bytes default (16MiB) → 30KiB (live)"},
		{".retry", func(c *Config) { c.Servers[0].Retry.Attempts = 5 }, "servers.one.retry.attempts default (2) → 5 (live)"},
		{"", func(c *Config) { c.Servers[0].Adapter = program{1} }, "servers.one (next)"},
		{"", func(c *Config) {}, ""},
	} {
		was, now := two(), two()
		tc.change(now)
		tested[tc.key] = true
		differ(t, tc.key, was, now, tc.want)
		running := Running(was, now, Diff(was, now))
		for _, c := range Diff(running, now) {
			if c.Effect != EffectRestart {
				t.Errorf("%s: after it counts, there still is %s", tc.key, c)
			}
		}
		if got := len(Diff(was, running)) > 0; got != strings.Contains(regexp.MustCompile(`(?m)^.*\(restart\)$`).ReplaceAllString(tc.want, ""), "(") {
			t.Errorf("%s: what counts is %s", tc.key, lines(Diff(was, running)))
		}
	}
	for dot, of := range map[string]reflect.Type{"": reflect.TypeFor[Config](), ".": reflect.TypeFor[Server]()} {
		for _, f := range setting.Fields(of) {
			if f.Keyed() && !tested[dot+f.Key] && !change(reflect.New(f.Type).Elem()) {
				t.Errorf("%s%s has no case here", dot, f.Key)
			}
		}
	}
}

// program is an adapter that a program sets.
type program struct{ n int }

// Open fails.
func (program) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	return nil, bridge.ErrUnavailable
}

func lines(changes []Change) string {
	var all []string
	for _, c := range changes {
		all = append(all, c.String())
	}
	return strings.Join(all, "\n")
}

func differ(t *testing.T, what string, was, now *Config, want string) {
	t.Helper()
	if got := lines(Diff(was, now)); got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A live key applies to new sessions only if connections are opened with it, or if it switches on a
// guard that was off.
func TestDiffLate(t *testing.T) {
	for _, tc := range []struct {
		name        string
		was, change func(s *Server)
		want        string
	}{
		{"breaker of a REST API", asRest, func(s *Server) { s.Breaker.Pause = time.Minute }, "servers.one.breaker.pause default (5s) → 1m0s (next)"},
		{"time-outs of a REST API", asRest, func(s *Server) { s.Timeout, s.MaxTimeout = time.Minute, 2*time.Minute }, "servers.one.timeout 5m0s → 1m0s (next)\nservers.one.max_timeout 1h0m0s → 2m0s (next)"},
		{"tools of a REST API", asRest, func(s *Server) { s.Tools.Deny = []string{"a"} }, "servers.one.tools (next)"},
		{"prefix of a REST API", asRest, func(s *Server) { s.Prefix = "" }, "servers.one.prefix one__ → none (next)"},
		{"resources of a REST API", asRest, func(s *Server) { s.Resources.Deny = []string{"a"} }, "servers.one.resources (next)"},
		{"limits of a REST API", asRest, func(s *Server) { s.Limits.Calls = 5 }, "servers.one.limits.calls default (512) → 5 (live)"},
		{"an answer of a REST API", asRest, func(s *Server) { s.Rest = &rest.Config{Limits: rest.Limits{Answer: 30 << 10}} }, "servers.one.rest.limits.answer default (100KiB) → 30KiB (renew)"},
		{"back to the default", func(s *Server) { s.Limits.Calls = 5 }, func(s *Server) { s.Limits.Calls = 0 }, "servers.one.limits.calls 5 → default (512) (live)"},
		{"limits at workers", func(s *Server) { s.Place = PlaceWorkers }, func(s *Server) { s.Limits.Calls, s.MaxChildren = 5, 6 }, "servers.one.limits.calls default (512) → 5 (next)\nservers.one.max_children 256 → 6 (next)"},
		{"the first rate", func(*Server) {}, func(s *Server) { s.Limits.Rate.PerSecond = 1 }, "servers.one.limits.rate (next)"},
		{"another rate", func(s *Server) { s.Limits.Rate.PerSecond = 1 }, func(s *Server) { s.Limits.Tools = map[string]limits.Rate{"a": {PerSecond: 1}} }, "servers.one.limits.tools (live)"},
		{"no rate any more", func(s *Server) { s.Limits.Rate.PerSecond = 1 }, func(s *Server) { s.Limits.Rate.PerSecond = 0 }, "servers.one.limits.rate (live)"},
		{"breaker on", func(s *Server) { s.Breaker.Off = true }, func(s *Server) { s.Breaker.Off = false }, "servers.one.breaker (next)"},
		{"cache on", func(s *Server) { s.Cache.Off = true }, func(s *Server) { s.Cache.Off = false }, "servers.one.cache (next)"},
		{"cache off", func(*Server) {}, func(s *Server) { s.Cache.Off = true }, "servers.one.cache (live)"},
		{"retry on", func(s *Server) { s.Retry.Attempts = 1 }, func(s *Server) { s.Retry.Attempts = 2 }, "servers.one.retry.attempts 1 → 2 (next)"},
		{"retry off", func(*Server) {}, func(s *Server) { s.Retry.Off = true }, "servers.one.retry (live)"},
	} {
		was, now := two(), two()
		tc.was(&was.Servers[0])
		tc.was(&now.Servers[0])
		tc.change(&now.Servers[0])
		differ(t, tc.name, was, now, tc.want)
	}
}

// asRest changes the kind of a server to rest.
func asRest(s *Server) { s.Stdio, s.Rest = nil, &rest.Config{} }

// Some keys need a restart only in some cases.
func TestDiffCases(t *testing.T) {
	was, now := two(), two()
	was.TLS, now.TLS = TLS{"a", "b"}, TLS{"a", "c"}
	differ(t, "another certificate", was, now, "tls.key_file (live)")
	was, now = two(), two()
	was.Access = nil
	differ(t, "the first rules", was, now, "access (restart)")
	if len(Running(was, now, Diff(was, now)).Access) != 0 {
		t.Error("the first rules count at once")
	}
	was, now = two(), two()
	was.Access = append(was.Access, Access{Name: "staff", Users: Words{"a"}})
	now.Access = []Access{{Name: "staff", Token: "0123456789abcdef"}, {Name: "dev", Token: "another-long-key"}}
	differ(t, "keys, and a rule for users in the place of which there is a key", was, now, "access (restart)\naccess.ops there → removed (live)\naccess.dev.token (live)\naccess.dev.servers (live)")
	if got := Running(was, now, Diff(was, now)).Access; len(got) != 2 || got[0].Name != "staff" || !got[0].users() || got[1].Token != "another-long-key" {
		t.Errorf("what counts then: %+v", got)
	}
	was, now = two(), two()
	was.Cluster.Redis, now.Cluster.Redis, now.SessionIdle = "redis://a", "redis://a", time.Hour
	differ(t, "in a cluster", was, now, "session_idle 30m0s → 1h0m0s (restart)")
	was, now = two(), two()
	was.Servers[0].Forward = []bridge.Forward{{From: "A", To: "A"}, {From: "B", To: "B"}}
	now.Servers[0].Forward = was.Servers[0].Forward[1:]
	differ(t, "a header that is not passed on any more", was, now, "servers.one.forward (renew)")
	was, now = two(), two()
	was.Servers[0].Adapter, now.Servers[0].Adapter = program{1}, program{1}
	differ(t, "the same part of a program", was, now, "")
}

// A value from the environment is shown as its reference.
func TestDiffSecrets(t *testing.T) {
	const text = "listen: 127.0.0.1:${PORT}\nservers:\n  one:\n    stdio: { command: sh, env: { A: \"${TOKEN}\" } }\n"
	read := func(port string) *Config {
		c, err := Parse("f", []byte(text), func(name string) (string, bool) {
			return map[string]string{"PORT": port, "TOKEN": "s3cr3t" + port}[name], true
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	differ(t, "values", read("40001"), read("40002"), "listen 127.0.0.1:${PORT} → 127.0.0.1:${PORT} (restart)\nservers.one.stdio.env (renew)")
}

// A second reading of the same file has no changes.
func TestDiffSame(t *testing.T) {
	env := environment(programs(t))
	t.Chdir("testdata")
	for _, file := range filesOf(t, "*.good.*") {
		differ(t, file, loaded(t, file, env), loaded(t, file, env), "")
	}
}

// A change of a certificate is a change of the server.
func TestDiffFiles(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) { write(t, folder, name, text, 0o600) }
	write("a.env", "A=1\n")
	write("ca.pem", "first")
	write("v.txt", "1\n")
	write("c.yaml", "servers:\n  one:\n    stdio: { command: sh, env_file: a.env }\n    tools: { override: { x: { args: { a: { value_file: v.txt } } } } }\n  two:\n    http: { url: https://a, ca_file: ca.pem }\n")
	read := func() *Config {
		return loaded(t, filepath.Join(folder, "c.yaml"), nil)
	}
	was := read()
	if got := was.Files(); !slices.Equal(got, []string{filepath.Join(folder, "a.env"), filepath.Join(folder, "ca.pem"), filepath.Join(folder, "v.txt")}) {
		t.Errorf("files: %v", got)
	}
	write("a.env", "A=2\n")
	write("ca.pem", "second")
	write("v.txt", "2\n")
	differ(t, "files", was, read(), "servers.one.stdio.env (renew)\nservers.one.tools (live)\nservers.two.http.ca_file content → another content (renew)")
}

// docs/reload.md has the effect of each key. go test -update adds keys that it lacks.
func TestDiffDocumented(t *testing.T) {
	const page = "../docs/reload.md"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for heading, of := range map[string]reflect.Type{"## When a key of the file counts": reflect.TypeFor[Config](), "## When a key of a server counts": reflect.TypeFor[Server]()} {
		_, section, ok := strings.Cut(text, "\n"+heading+"\n")
		if !ok {
			t.Fatalf("there is no %q", heading)
		}
		section, _, _ = strings.Cut(section, "\n#")
		said := map[string]string{}
		for _, row := range regexp.MustCompile("(?m)^\\| (`.+?`) \\| (live|renew|next|restart)\\b.* \\|$").FindAllStringSubmatch(section, -1) {
			for _, key := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
				said[key[1]] = row[2]
			}
		}
		added := section
		for _, f := range setting.Fields(of) {
			if end := " | " + f.Effect + " | |\n"; f.Keyed() && said[f.Key] == "" && *update { // into the last row without notes
				i := strings.LastIndex(added, end)
				added = added[:i] + ", `" + f.Key + "`" + added[i:]
			} else if f.Keyed() && said[f.Key] != f.Effect {
				t.Errorf("%s: %s is %q, want %q", heading, f.Key, said[f.Key], f.Effect)
			}
			delete(said, f.Key)
		}
		for key := range said {
			t.Errorf("%s: %s is no key", heading, key)
		}
		text = strings.Replace(text, section, added, 1)
	}
	if *update {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkDiff compares 1,000 servers, one of which differs.
func BenchmarkDiff(b *testing.B) {
	was, now := two(), two()
	for n := range 1000 {
		for _, c := range []*Config{was, now} {
			s := DefaultServer(fmt.Sprint("s", n), "")
			s.Stdio = &stdio.Config{Command: "true", Args: []string{"a", "b"}, Env: map[string]string{"A": "1"}}
			c.Servers = append(c.Servers, s)
		}
	}
	now.Servers[500].Timeout = time.Minute
	for b.Loop() {
		if got := Diff(was, now); len(got) != 1 {
			b.Fatal(lines(got))
		}
	}
}

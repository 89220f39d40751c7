package config

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/adapters/stdio"
	"github.com/mcp-bridge/bridge/bridge/filter"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/internal/setting"
	"github.com/mcp-bridge/bridge/internal/strict"
)

var update = flag.Bool("update", false, "write the .want files of testdata anew")

// environment is the environment for the files of testdata.
func environment(path string) func(string) (string, bool) {
	vars := map[string]string{
		"PATH": path, "TOKEN": "s3cr3t-t0k3n", "EMPTY": "", "PORT": "8080", "COUNT": "7919",
		"SIZE": "2MiB", "DRAIN": "3s", "NO": "false", "YAML": "a: [b, \"c\n",
	}
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// programs returns a folder with the commands of testdata.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"npx", "uvx"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFiles loads every file of testdata: NAME.good.* must load as NAME.good.*.want
// says, NAME.bad.* must fail with that text. go test -update writes them.
func TestFiles(t *testing.T) {
	env := environment(programs(t))
	t.Chdir("testdata")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range append(filesOf(t, "*.good.*"), "keys/bob.key", "keys/front.key", "keys/old.key") {
		if err := os.Chmod(key, 0o600); err != nil { // no version control keeps it, and others are warned of
			t.Fatal(err)
		}
	}
	good, bad := 0, 0
	for _, file := range filesOf(t, "*.[gb]*.[yj]*") {
		t.Run(file, func(t *testing.T) {
			c, err := Load(file, env)
			var got string
			if strings.Contains(file, ".good.") {
				good++
				if err != nil {
					t.Fatalf("Load(%q) = %v", file, err)
				}
				got = strings.ReplaceAll(dump(c), here, "$HERE")
				if warnings := strings.Join(c.Warnings, "\n"); strings.Contains(warnings, "s3cr3t") || strings.Contains(warnings, "top-secret") {
					t.Errorf("Load(%q): a warning shows a secret: %s", file, warnings)
				}
			} else {
				bad++
				var faults Faults
				if !errors.As(err, &faults) || c != nil {
					t.Fatalf("Load(%q) = %v, %v, want Faults", file, c, err)
				}
				got = err.Error() + "\n"
				for _, secret := range []string{"s3cr3t", "top-secret", "7919"} {
					if strings.Contains(got, secret) {
						t.Errorf("Load(%q): the error shows %s", file, secret)
					}
				}
			}
			if *update {
				if err := os.WriteFile(file+".want", []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file + ".want")
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("Load(%q):\n%s\nwant:\n%s", file, got, want)
			}
		})
	}
	if good == 0 || bad == 0 {
		t.Errorf("testdata has %d good and %d bad files", good, bad)
	}
}

// dump returns a Config as lines of "key = value", without defaults.
func dump(c *Config) string {
	var b strings.Builder
	differences(&b, "", reflect.ValueOf(*c), reflect.ValueOf(Default()))
	for _, s := range c.Servers {
		b.WriteString("server " + s.Name + "\n")
		differences(&b, "  ", reflect.ValueOf(s), reflect.ValueOf(DefaultServer(s.Name, "")))
		for _, f := range setting.Fields(reflect.TypeFor[Server]()) {
			kind := reflect.ValueOf(s).FieldByIndex(f.Index)
			if kind.Kind() == reflect.Pointer && !kind.IsNil() {
				differences(&b, "  "+f.Key+" ", kind.Elem(), reflect.Zero(kind.Type().Elem()))
			}
		}
	}
	for _, w := range c.Warnings {
		b.WriteString("warning " + w + "\n")
	}
	return b.String()
}

func differences(b *strings.Builder, indent string, v, standard reflect.Value) {
	for _, f := range setting.Fields(v.Type()) {
		name, field := f.Key, v.FieldByIndex(f.Index)
		if name == "-" || name == "servers" || field.Kind() == reflect.Pointer {
			continue
		}
		if reflect.DeepEqual(field.Interface(), standard.FieldByIndex(f.Index).Interface()) {
			continue
		}
		value := fmt.Sprint(field)
		switch field.Interface().(type) {
		case filter.Rules, rest.Auth, rest.Catalog, rest.Limits, []rest.Tool, []rest.Rule:
			text, _ := json.Marshal(field.Interface()) // follows pointers, unlike fmt
			value = string(text)
		}
		switch field.Kind() {
		case reflect.String, reflect.Map:
			value = fmt.Sprintf("%q", field)
		case reflect.Slice:
			if field.Type().Elem().Kind() == reflect.String {
				value = fmt.Sprintf("%q", field)
			}
		}
		fmt.Fprintf(b, "%s%s = %s\n", indent, name, value)
	}
}

// A server that sets only share equals DefaultServer.
func TestParseDefaults(t *testing.T) {
	for _, test := range []struct {
		share gateway.Share
		idle  time.Duration
	}{
		{ShareSession, 0}, {SharePrincipal, 10 * time.Minute}, {ShareCall, 10 * time.Minute}, {ShareAll, 10 * time.Minute},
	} {
		c := parsed(t, "servers: { a: { share: "+string(test.share)+", stdio: { command: x } } }", none)
		want := Default()
		server := DefaultServer("a", test.share)
		server.Stdio = &stdio.Config{Command: "x"}
		want.Servers, want.origins, want.name = []Server{server}, c.origins, "bridge.yaml"
		if !reflect.DeepEqual(*c, want) {
			t.Errorf("Parse with share %s = %+v, want %+v", test.share, *c, want)
		}
		if server.IdleStop != test.idle {
			t.Errorf("DefaultServer(%q).IdleStop = %v, want %v", test.share, server.IdleStop, test.idle)
		}
	}
}

func none(string) (string, bool) { return "", false }

// Parse opens no file: paths may be those of another machine.
func TestParseOpensNothing(t *testing.T) {
	c := parsed(t, "servers: { a: { stdio: { command: no-such, cwd: no/such, env_file: no.env } } }", none)
	if got := c.Servers[0].Stdio; got.Cwd != "no/such" || got.EnvFile != "no.env" || len(c.Warnings) > 0 {
		t.Errorf("Parse = %+v, warnings %q", got, c.Warnings)
	}
}

func TestLoadUnreadable(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of a missing file = %v, want fs.ErrNotExist", err)
	}
	if _, err := Load(t.TempDir(), none); err == nil {
		t.Error("Load of a folder succeeded")
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, make([]byte, strict.MaxFile+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big, none); err == nil || !strings.Contains(err.Error(), "larger than 4 MiB") {
		t.Errorf("Load of a large file = %v", err)
	}
}

// A nil env is the environment of the process.
func TestParseProcessEnvironment(t *testing.T) {
	t.Setenv("BRIDGE_TEST_COMMAND", "npx")
	c, err := Parse("f.yaml", []byte(`servers: { a: { stdio: { command: "${BRIDGE_TEST_COMMAND}" } } }`), nil)
	if err != nil || c.Servers[0].Stdio.Command != "npx" {
		t.Errorf("Parse = %v, %v", c, err)
	}
}

// Files from other systems: CRLF, a byte order mark, and both with right lines.
func TestParseLineEnds(t *testing.T) {
	text := "\ufeffdrain: 1s\r\nservers:\r\n  a:\r\n    stdio:\r\n      command: \"./a\r\n        b\"\r\n      args: [x,\r\n        y]\r\n    shar: all\r\n"
	_, err := Parse("f.yaml", []byte(text), none)
	want := `f.yaml:9: server "a": unknown key "shar": did you mean "share"?`
	if err == nil || err.Error() != want {
		t.Errorf("Parse = %v, want %s", err, want)
	}
}

func TestSize(t *testing.T) {
	for _, test := range []struct {
		text string
		want Size
		back string
	}{
		{"0", 0, "0B"}, {"1", 1, "1B"}, {"16777216", 16 << 20, "16MiB"}, {"16MiB", 16 << 20, "16MiB"},
		{"16 mib", 16 << 20, "16MiB"}, {"16MB", 16e6, "15625KiB"}, {"5kb", 5000, "5KB"}, {"512KiB", 512 << 10, "512KiB"},
		{"2GiB", 2 << 30, "2GiB"}, {"7B", 7, "7B"},
	} {
		got, err := ParseSize(test.text)
		if err != nil || got != test.want || got.String() != test.back {
			t.Errorf("ParseSize(%q) = %v, %v, want %d as %s", test.text, got, err, test.want, test.back)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "+1", "1.5MiB", "1M", "16MiBi", "0x10", "9223372036854775807KiB", "1 6MiB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %v, want an error", text, got)
		}
	}
}

func TestLoopback(t *testing.T) {
	for _, test := range []struct {
		listen string
		want   bool
	}{
		{"127.0.0.1:1", true}, {"127.9.9.9:1", true}, {"[::1]:0", true}, {"LocalHost:1", true}, {"[::ffff:127.0.0.1]:1", true},
		{"8808", true}, {":8808", false}, {"0.0.0.0:1", false}, {"[::]:1", false}, {"example.com:1", false}, {"localhost", false},
	} {
		if got := Loopback(test.listen); got != test.want {
			t.Errorf("Loopback(%q) = %v, want %v", test.listen, got, test.want)
		}
	}
}

// Settings that come from flags are checked by the rules of the file.
func TestValidate(t *testing.T) {
	server := DefaultServer("a", ShareAll)
	server.Stdio = &stdio.Config{Command: "npx"}
	good := Default()
	good.Servers = []Server{server}
	if err := good.Validate(); err != nil {
		t.Errorf("Validate() = %v", err)
	}

	bad := Default()
	bad.Listen = "nowhere"
	bad.AllowedOrigins = []string{"https://ok.example.com", "*"}
	bad.MaxMessage = 1 << 40
	server.Share, server.Timeout = "none", 2*time.Hour
	server.Stdio = &stdio.Config{StopTerm: -1}
	server.Breaker.Percent = 101
	bad.Servers = []Server{server, {Name: "a"}, {Name: "B"}}
	refused(t, &bad,
		`listen is "nowhere": expected HOST:PORT`,
		`allowed_origins is "*": `,
		"max_message must not be larger",
		`server "a": share is "none": must be session, principal, call or all`,
		`server "a": timeout must not be longer`,
		`server "a": stdio: command is empty`,
		`server "a": stdio: stop_term is -1ns: must not be negative`,
		`server "a": breaker: percent is 101: must be at most 100`,
		`server "a": there are two of this name`,
		`server "a": exactly one kind must be set, there are 0`,
		`server "B": a server's name has`,
	)
	if empty := Default(); empty.Validate() == nil {
		t.Error("Validate() without servers = nil")
	}
}

// The warning about a command tells a program that is not there from one that this user may not execute.
func TestCommandNotAllowed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes of files")
	}
	dir := t.TempDir()
	write(t, dir, "tool", "", 0o644)
	for _, test := range []struct{ command, want string }{
		{filepath.Join(dir, "tool"), `command is "` + filepath.Join(dir, "tool") + `": permission denied: make it executable for this user`},
		{"tool", `command is "tool": permission denied in ` + dir + ": make it executable for this user"},
		{filepath.Join(dir, "none"), "there is no such program"},
		{"none", "not found in PATH"},
	} {
		file := filepath.Join(dir, "bridge.yaml")
		if err := os.WriteFile(file, []byte("servers: { a: { stdio: { command: "+test.command+" } } }\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c := loaded(t, file, environment(dir))
		if got := strings.Join(c.Warnings, "\n"); !strings.Contains(got, test.want) {
			t.Errorf("warnings for %q: %s\nwant %s", test.command, got, test.want)
		}
	}
}

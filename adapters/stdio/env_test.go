package stdio

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name    string
		windows bool
		bridge  []string
		pass    []string
		own     map[string]string
		forward map[string]string
		want    []string
		held    []string
	}{
		{
			name:   "only the safe part",
			bridge: []string{"SECRET=x", "PATH=/bin", "LC_ALL=C", "AWS_SECRET_ACCESS_KEY=y", "HOME=/root", "path=/other"},
			want:   []string{"HOME=/root", "LC_ALL=C", "PATH=/bin"},
			held:   []string{"SECRET", "AWS_SECRET_ACCESS_KEY", "path"},
		},
		{
			name:   "own wins",
			bridge: []string{"PATH=/bin", "TZ=UTC"},
			own:    map[string]string{"PATH": "/opt/bin", "TOKEN": "a=b", "EMPTY": ""},
			want:   []string{"EMPTY=", "PATH=/opt/bin", "TOKEN=a=b", "TZ=UTC"},
		},
		{
			name:    "what is forwarded wins over all",
			bridge:  []string{"PATH=/bin", "TZ=UTC"},
			own:     map[string]string{"TOKEN": "own", "LOG": "debug"},
			forward: map[string]string{"TOKEN": "theirs", "TZ": "CET"},
			want:    []string{"LOG=debug", "PATH=/bin", "TOKEN=theirs", "TZ=CET"},
		},
		{
			name:    "windows: what is forwarded wins, however it is spelt",
			windows: true,
			own:     map[string]string{"token": "own"},
			forward: map[string]string{"TOKEN": "theirs"},
			want:    []string{"TOKEN=theirs"},
		},
		{
			name:   "no functions of a shell",
			bridge: []string{"TERM=() { :; }; echo", "USER=me"},
			pass:   []string{"*"},
			want:   []string{"USER=me"},
		},
		{
			name:   "proxies and CA files",
			bridge: []string{"https_proxy=http://proxy:3128", "NO_PROXY=localhost", "SSL_CERT_FILE=/ca.pem", "NODE_EXTRA_CA_CERTS=/ca.pem", "ssl_cert_file=/no.pem"},
			want:   []string{"NODE_EXTRA_CA_CERTS=/ca.pem", "NO_PROXY=localhost", "SSL_CERT_FILE=/ca.pem", "https_proxy=http://proxy:3128"},
			held:   []string{"ssl_cert_file"},
		},
		{
			name:   "a proxy's password is a secret",
			bridge: []string{"HTTPS_PROXY=http://me:hunter2@proxy:3128", "HTTP_PROXY=me:hunter2@proxy:3128"},
			pass:   []string{"HTTP_PROXY"},
			want:   []string{"HTTP_PROXY=me:hunter2@proxy:3128"},
			held:   []string{"HTTPS_PROXY"},
		},
		{
			name:   "what is passed by name or pattern, and own wins",
			bridge: []string{"AWS_REGION=eu", "AWS_PROFILE=a", "KUBECONFIG=/k", "SECRET=x", "OWN=bridge", "PWD=/", "SHLVL=1", "_=/bin/x"},
			pass:   []string{"AWS_*", "KUBECONFIG", "NONE"},
			own:    map[string]string{"AWS_PROFILE": "b", "OWN": "own"},
			want:   []string{"AWS_PROFILE=b", "AWS_REGION=eu", "KUBECONFIG=/k", "OWN=own"},
			held:   []string{"SECRET"},
		},
		{
			name:   "everything",
			bridge: []string{"SECRET=x", "PWD=/"},
			pass:   []string{"*"},
			want:   []string{"PWD=/", "SECRET=x"},
		},
		{
			name:    "windows: patterns in any case",
			windows: true,
			bridge:  []string{"Aws_Region=eu", "Http_Proxy=http://proxy", "Secret=x"},
			pass:    []string{"aws_*"},
			want:    []string{"Aws_Region=eu", "Http_Proxy=http://proxy"},
			held:    []string{"Secret"},
		},
		{
			name:    "windows: names differ in case only by spelling",
			windows: true,
			bridge:  []string{"Path=C:\\bin", "SystemRoot=C:\\Windows", "=C:=C:\\", "HOME=/root"},
			own:     map[string]string{"PATH": "D:\\bin", "Debug": "1", "debug": "2"},
			want:    []string{"PATH=D:\\bin", "SystemRoot=C:\\Windows", "debug=2"},
			held:    []string{"HOME"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, held := compose(c.windows, c.bridge, c.pass, c.own, c.forward); !slices.Equal(got, c.want) || !slices.Equal(held, c.held) {
				t.Errorf("compose(%v, %q, %q, %q, %q) = %q and %q, want %q and %q", c.windows, c.bridge, c.pass, c.own, c.forward, got, held, c.want, c.held)
			}
		})
	}
}

// The error names a variable that a child did not get if its stderr names it, and a proxy in any case.
func TestHeldBack(t *testing.T) {
	const said = "starting\nError: set FOO_KEY (or $BAR_KEY) first; A FOO_KEY_2"
	for _, c := range []struct {
		held []string
		want string
	}{
		{[]string{"A", "FOO", "KEY_2", "FOO_KEY"}, "FOO_KEY is set here and was not passed: --env FOO_KEY, or env_pass: [FOO_KEY] in the file"},
		{[]string{"BAR_KEY", "FOO_KEY"}, "BAR_KEY is set here and was not passed: --env BAR_KEY, or env_pass: [BAR_KEY] in the file\nFOO_KEY is set here and was not passed: --env FOO_KEY, or env_pass: [FOO_KEY] in the file"},
		{[]string{"X", "https_proxy"}, "https_proxy was not passed to it, because it has a password: if it needs that, --env https_proxy, or env_pass: [https_proxy] in the file"},
	} {
		if got := heldBack(c.held, said); got == nil || got.Error() != c.want {
			t.Errorf("heldBack(%q) = %v, want %s", c.held, got, c.want)
		}
	}
	for _, held := range [][]string{nil, {"A", "FOO", "key_2", "UNRELATED"}} {
		if got := heldBack(held, said); got != nil {
			t.Errorf("heldBack(%q) = %v, want nothing", held, got)
		}
	}
}

// A child gets what its configuration says, the safe part of the bridge's environment, and what is forwarded of its
// client's headers as variables. It gets no other header of the client, no second value, and no code for a shell.
func TestChildsEnvironment(t *testing.T) {
	quiet(t)
	t.Setenv("BRIDGE_SECRET", "hunter2")
	a := adapter(t, "server", conn.Options{})
	a.c.Env["GITHUB_TOKEN"], a.c.Env["LOG"] = "own", "debug"
	from := adaptertest.Caller("")
	from.Header = http.Header{
		"GITHUB_TOKEN": {"theirs; $(reboot)", "second"}, "X_TENANT": {"a b=c"}, "EMPTY": {}, "FUNCTION": {"() { :; }; echo"},
	}
	up, err := a.Open(t.Context(), from, &adaptertest.Client{})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close(t.Context())
	var got []string
	if err := json.Unmarshal([]byte(call(t, up, `{"environ":true}`).Result(t)), &got); err != nil {
		t.Fatal(err)
	}
	want, held := environment(nil, a.c.Env, map[string]string{"GITHUB_TOKEN": "theirs; $(reboot)", "X_TENANT": "a b=c"})
	slices.Sort(got)
	if !slices.Equal(got, want) || !slices.Contains(got, "LOG=debug") || !slices.Contains(got, "GITHUB_TOKEN=theirs; $(reboot)") {
		t.Errorf("environment = %q\nwant          %q", got, want)
	}
	if !slices.Contains(got, "PATH="+os.Getenv("PATH")) || slices.Contains(got, "BRIDGE_SECRET=hunter2") || !slices.Contains(held, "BRIDGE_SECRET") {
		t.Errorf("environment = %q, want the bridge's PATH and not its secret, which %q has", got, held)
	}
}

func TestLookPath(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir()) // what Getwd says after Chdir
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"a/tool": 0o644, "b/tool": 0o755, "c/tool": 0o755, "b/sub/other": 0o755} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, c := range []struct {
		name, file, path, dir, want string
	}{
		{"the first that can be run", "tool", dir + "/none:" + dir + "/a:" + dir + "/b:" + dir + "/c", "", "b/tool"},
		{"only such that cannot be run", "tool", dir + "/a", "", ""},
		{"a folder is no program", "sub", dir + "/b", "", ""},
		{"relative entries are passed over", "tool", "b:.:", dir + "/c", ""},
		{"from the working directory", "./tool", "", dir + "/b", "b/tool"},
		{"from a relative working directory", "./tool", "", "b", "b/tool"},
		{"from the bridge's", "b/sub/other", "", "", "b/sub/other"},
		{"absolute", dir + "/c/tool", "", dir + "/b", "c/tool"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := lookPath(c.file, []string{"PATH=" + c.path}, c.dir)
			want := ""
			if c.want != "" {
				want = filepath.Join(dir, c.want)
			}
			if got != want || (err == nil) != (want != "") {
				t.Errorf("lookPath(%q, PATH=%s, %q) = %q, %v, want %q", c.file, c.path, c.dir, got, err, want)
			}
		})
	}
}

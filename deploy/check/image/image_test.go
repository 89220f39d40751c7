// Package image checks the Dockerfile, and runs the files of the image that has no base.
package image

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const (
	folder = "../../image"
	root   = "../../.."
)

// targets are the published images.
var targets = []string{"mcp-bridge", "node", "uv", "all"}

// parse reads a Dockerfile as BuildKit does.
func parse(text []byte) (map[string]instructions.Stage, []instructions.ArgCommand, error) {
	read, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	stages, args, err := instructions.Parse(read.AST, nil)
	if err != nil {
		return nil, nil, err
	}
	all := map[string]instructions.Stage{}
	for _, s := range stages {
		all[s.Name] = s
	}
	return all, args, nil
}

// faults returns the faults of a Dockerfile.
func faults(text []byte) (found []string) {
	stages, args, err := parse(text)
	if err != nil {
		return []string{err.Error()}
	}
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	given := map[string]bool{"BUILDPLATFORM": true}
	for _, a := range args {
		for _, kv := range a.Args {
			given[kv.Key] = true
			if kv.Value == nil || strings.HasSuffix(*kv.Value, ":latest") || !strings.Contains(*kv.Value, ":") {
				fault("the base %s has no tag", kv.Key)
			}
		}
	}
	for name, s := range stages {
		if m := regexp.MustCompile(`^\$\{(\w+)\}$`).FindStringSubmatch(s.BaseName); m != nil && !given[m[1]] {
			fault("stage %s is from %s, which is no ARG", name, s.BaseName)
		} else if m == nil && s.BaseName != "scratch" && stages[s.BaseName].Name == "" {
			fault("stage %s is from %s, which is neither an ARG nor a stage", name, s.BaseName)
		}
		for _, c := range s.Commands {
			if c, ok := c.(*instructions.CopyCommand); ok && c.From != "" && stages[c.From].Name == "" {
				fault("stage %s copies from %s, which is no stage", name, c.From)
			}
		}
	}
	for _, name := range targets {
		s, ok := stages[name]
		if !ok {
			fault("there is no target %s", name)
			continue
		}
		if (s.BaseName == "scratch") != (name == "mcp-bridge") {
			fault("target %s is from %s", name, s.BaseName)
		}
		said := map[string]string{}
		env := map[string]string{}
		for _, c := range s.Commands {
			switch c := c.(type) {
			case *instructions.RunCommand:
				fault("target %s runs something on the processor of the image: that needs emulation", name)
			case *instructions.EnvCommand:
				for _, kv := range c.Env {
					env[kv.Key] = kv.Value
				}
			case *instructions.LabelCommand:
				for _, kv := range c.Labels {
					said["LABEL "+kv.Key] = strings.Trim(kv.Value, `"`)
				}
			case *instructions.UserCommand:
				said["USER"] = c.User
			case *instructions.StopSignalCommand:
				said["STOPSIGNAL"] = c.Signal
			case *instructions.ExposeCommand:
				said["EXPOSE"] = strings.Join(c.Ports, " ")
			case *instructions.EntrypointCommand:
				said["ENTRYPOINT"] = fmt.Sprint(c.PrependShell, c.CmdLine)
			case *instructions.CmdCommand:
				said["CMD"] = fmt.Sprint(c.PrependShell, c.CmdLine)
			case *instructions.HealthCheckCommand:
				said["HEALTHCHECK"] = fmt.Sprint(c.Health.Test)
			}
		}
		for key, want := range map[string]string{
			"USER": "65532:65532", "STOPSIGNAL": "SIGTERM", "EXPOSE": "8808", "LABEL org.opencontainers.image.licenses": "MIT",
			"ENTRYPOINT": "false [mcp-bridge]", "CMD": "false [serve -c /etc/mcp-bridge/bridge.yaml]",
			"HEALTHCHECK": "[CMD mcp-bridge status --health -c /etc/mcp-bridge/bridge.yaml]",
		} {
			if said[key] != want {
				fault("target %s: %s is %q, want %q", name, key, said[key], want)
			}
		}
		if env["HOME"] != "/var/lib/mcp-bridge" {
			fault("target %s: HOME is %q", name, env["HOME"])
		}
	}
	return found
}

// The Dockerfile has no faults, and each possible fault is detected (O-060, O-062).
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile(folder + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults(text) {
		t.Error(fault)
	}
	for _, broken := range []struct{ from, to, want string }{
		{"USER 65532:65532", "USER root", `USER is "root"`},
		{"STOPSIGNAL SIGTERM", "STOPSIGNALS SIGTERM", "unknown instruction"},
		{`ENTRYPOINT ["mcp-bridge"]`, "ENTRYPOINT mcp-bridge", "ENTRYPOINT is"},
		{"node:24-bookworm-slim\n", "node:latest\n", "has no tag"},
		{"--from=node-files", "--from=nodefiles", "which is no stage"},
		{"FROM ${PYTHON} AS uv\n", "FROM python AS uv\n", "neither an ARG nor a stage"},
		{"FROM scratch AS mcp-bridge\n", "FROM scratch AS bridge\n", "there is no target mcp-bridge"},
		{"COPY --from=scratch-files /rootfs /\n", "COPY --from=scratch-files /rootfs /\nRUN true\n", "needs emulation"},
		{"HOME=/var/lib/mcp-bridge", "HOME=/root", "HOME is"},
	} {
		changed := bytes.ReplaceAll(text, []byte(broken.from), []byte(broken.to))
		if bytes.Equal(changed, text) {
			t.Errorf("the Dockerfile has no %q", broken.from)
		}
		if got := faults(changed); !slices.ContainsFunc(got, func(f string) bool { return strings.Contains(f, broken.want) }) {
			t.Errorf("with %q: said is %q, want %q", broken.to, got, broken.want)
		}
	}
}

// runLines returns the commands of a stage.
func runLines(t *testing.T, stage string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(folder + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	stages, _, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range stages[stage].Commands {
		if c, ok := c.(*instructions.RunCommand); ok {
			lines = append(lines, strings.Join(c.CmdLine, " "))
		}
	}
	return lines
}

// The image from scratch, without Docker: the Dockerfile's commands make its files in a folder. The program runs with
// that as its root, as the user of the image. It serves, passes the image's health check, and stops.
func TestScratch(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change the root of a process")
	}
	if _, err := os.Stat("/etc/ssl/certs/ca-certificates.crt"); err != nil {
		t.Skipf("the build stage has certificates, this machine has none: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "rootfs")
	for _, line := range append(runLines(t, "build"), runLines(t, "scratch-files")...) {
		if line == "go mod download" {
			continue // the files exist, or go build makes them
		}
		c := exec.Command("sh", "-c", regexp.MustCompile(`(\s)/rootfs`).ReplaceAllString(line, "${1}"+dir))
		c.Dir = root
		c.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH=", "VERSION=1.2.3", "GOARCH=", "GOFLAGS=") // those of a release decide the size
		c.Env = slices.DeleteFunc(c.Env, func(v string) bool { return v == "GOARCH=" || v == "TARGETARCH=" })
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	var files []string
	var size int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size += info.Size()
		files = append(files, strings.TrimPrefix(path, dir))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	if want := []string{"/etc/group", "/etc/passwd", "/etc/ssl/certs/ca-certificates.crt", "/usr/local/bin/mcp-bridge"}; !slices.Equal(files, want) {
		t.Errorf("the image has %q, want %q", files, want)
	}
	page, err := os.ReadFile(root + "/docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`the program and CA certificates, (\d+) MB`).FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/install.md has no size of the image")
	}
	// A library that calls methods by their names, such as text/template, adds 13 MB: the linker keeps all methods then.
	documented, err := strconv.ParseFloat(string(found[1]), 64)
	if mb := float64(size) / 1e6; err != nil || math.Abs(mb-documented) > 1 {
		t.Errorf("the image has %.1f MB, docs/install.md says %s (%v)", mb, found[1], err)
	}
	for path, mode := range map[string]fs.FileMode{"tmp": fs.ModeSticky | 0o777, "var/lib/mcp-bridge": 0o700} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil || info.Mode().Perm()|info.Mode()&fs.ModeSticky != mode {
			t.Errorf("%s: %v %v, want %v", path, info.Mode(), err, mode)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	config := "listen: " + at + "\nservers: { one: { http: { url: \"https://tools.example.com/mcp\" } } }\n"
	if err := os.WriteFile(filepath.Join(dir, "etc/mcp-bridge/bridge.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) *exec.Cmd {
		c := exec.Command("/usr/local/bin/mcp-bridge", args...)
		c.Dir, c.Env = "/var/lib/mcp-bridge", []string{"HOME=/var/lib/mcp-bridge", "PATH=/usr/local/bin"}
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		return c
	}
	out, err := command("version").CombinedOutput()
	if _, denied := err.(*fs.PathError); denied {
		t.Skipf("this machine does not let us change the root: %v", err)
	}
	if err != nil || !strings.HasPrefix(string(out), "mcp-bridge v1.2.3 ") {
		t.Fatalf("version: %v\n%s", err, out)
	}
	health := []string{"status", "--health", "-c", "/etc/mcp-bridge/bridge.yaml"}
	served := command("serve", "-c", "/etc/mcp-bridge/bridge.yaml")
	ended, log, said := begins(t, served, func() *exec.Cmd { return command(health...) }, at)
	if len(said) > 0 {
		t.Errorf("the health check of the image says %s", said)
	}
	if err := served.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v\n%s", err, log)
	}
}

// begins starts a bridge and waits until it answers at an address. Its health check fails before and succeeds then. It
// returns functions for the end of the bridge, the output of the bridge, and that of the health check.
func begins(t *testing.T, served *exec.Cmd, health func() *exec.Cmd, at string) (ended chan error, log *bytes.Buffer, said []byte) {
	t.Helper()
	if out, err := health().CombinedOutput(); err == nil {
		t.Errorf("the image is healthy before it serves: %s", out)
	}
	log = &bytes.Buffer{}
	served.Stdout, served.Stderr = log, log
	if err := served.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- served.Wait() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if res, err := http.Get("http://" + at + "/healthz"); err == nil {
			res.Body.Close()
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it has ended: %v\n%s", err, log)
		case <-tick.C:
		}
	}
	said, err := health().CombinedOutput()
	if err != nil {
		t.Errorf("the health check of the image: %v\n%s", err, said)
	}
	return ended, log, said
}

// The lines in the base's /etc/passwd stay.
func TestUsers(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/etc/passwd", []byte("root:x:0:0:root:/root:/bin/bash\nnode:x:1000:1000::/home/node:/bin/bash\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root may give files away")
	}
	if out, err := exec.Command("sh", folder+"/rootfs.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(dir + "/etc/passwd")
	if want := "root:x:0:0:root:/root:/bin/bash\nnode:x:1000:1000::/home/node:/bin/bash\nmcp-bridge:x:65532:65532:MCP bridge:/var/lib/mcp-bridge:/sbin/nologin\n"; err != nil || string(text) != want {
		t.Errorf("passwd is %q (%v), want %q", text, err, want)
	}
}

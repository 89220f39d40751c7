package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// need skips a test if a program is missing, or fails it where that is required.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if required(program) {
		t.Fatalf("%s is required by BRIDGE_TEST_REQUIRE", program)
	}
	t.Skipf("needs %s", program)
}

// required reports whether a test that needs a program must not be skipped.
func required(program string) bool {
	all := strings.Split(os.Getenv("BRIDGE_TEST_REQUIRE"), ",")
	return slices.Contains(all, program) || slices.Contains(all, "all")
}

// builder builds images with buildah, without a daemon or registry.
type builder struct {
	t   *testing.T
	dir string
}

// command returns a command of buildah.
func (b *builder) command(args ...string) *exec.Cmd {
	c := exec.Command("buildah", append([]string{"--root", b.dir + "/root", "--runroot", b.dir + "/run", "--storage-driver", "vfs"}, args...)...)
	c.Env = append(os.Environ(), "BUILDAH_ISOLATION=chroot")
	return c
}

// do runs a command of buildah and returns its output.
func (b *builder) do(args ...string) string {
	b.t.Helper()
	c := b.command(args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		b.t.Fatalf("buildah %s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// bases replace the base images, which are in registries. They have the files that the Dockerfile needs, and a few
// programs of this machine with their libraries. The Go command is also that of this machine; it does not use cached
// results by size and time, which are the same for all files here.
const bases = `
FROM scratch AS shell
COPY programs /
COPY passwd group /etc/
ENV PATH=/usr/local/bin:/bin
RUN ["/bin/mkdir", "-m", "1777", "/tmp"]
FROM shell AS go
COPY ca-certificates.crt /etc/ssl/certs/
ENV PATH=/usr/local/go/bin:/bin GOMODCACHE=/modules GOCACHE=/cache GOFLAGS=-buildvcs=false GODEBUG=goindex=0 HOME=/root
FROM shell AS node
COPY says /usr/local/bin/node
COPY says /usr/local/lib/node_modules/npm/bin/npm-cli.js
COPY says /usr/local/lib/node_modules/npm/bin/npx-cli.js
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
FROM shell AS python
COPY says /usr/local/bin/python3
FROM scratch AS uv
COPY says /uv
COPY says /uvx
`

// programs are the programs that the shell needs.
var programs = []string{"sh", "install", "mkdir", "chmod", "chown", "ln", "id", "ls", "touch", "cat"}

// install copies programs of this machine, and the libraries that they load, to a root.
func install(t *testing.T, dir string) {
	t.Helper()
	put := func(from, to string) {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(dir+to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(dir+to, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		put(path, "/bin/"+name)
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", path, err)
		}
		for _, library := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
			put(library[1], library[1])
		}
	}
}

func newBuilder(t *testing.T) *builder {
	t.Helper()
	b := &builder{t, t.TempDir()}
	context := filepath.Join(b.dir, "bases")
	if err := os.Mkdir(context, 0o755); err != nil {
		t.Fatal(err)
	}
	install(t, filepath.Join(context, "programs"))
	certificates, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"Dockerfile": bases, "says": "#!/bin/sh\necho \"${0##*/} $*\"\n",
		"passwd": "root:x:0:0:root:/root:/bin/sh\nsomebody:x:1000:1000::/home/somebody:/bin/sh\n", "group": "root:x:0:\n",
		"ca-certificates.crt": string(certificates),
	} {
		if err := os.WriteFile(filepath.Join(context, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, base := range []string{"go", "node", "python", "uv"} {
		b.do("build", "--layers", "--target", base, "-t", "localhost/"+base+":1", context)
	}
	return b
}

// build builds a target of a Dockerfile.
func (b *builder) build(dockerfile, target string, args ...string) string {
	b.t.Helper()
	text, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		b.t.Fatal(err)
	}
	places := strings.Fields(string(text))
	name := "localhost/ours-" + target + ":1"
	all := []string{"build", "--layers", "--format", "docker", "--timestamp", "0", "--ignorefile", folder + "/Dockerfile.dockerignore", "-f", dockerfile, "--target", target, "-t", name,
		"-v", places[0] + ":/usr/local/go:ro", "-v", places[1] + ":/modules", "-v", places[2] + ":/cache", "--platform", "linux/" + runtime.GOARCH, "--build-arg", "VERSION=1.2.3"}
	for arg, base := range map[string]string{"GO": "go", "NODE": "node", "PYTHON": "python", "UV": "uv"} {
		all = append(all, "--build-arg", arg+"=localhost/"+base+":1")
	}
	b.do(append(append(all, args...), root)...)
	return name
}

// settings are the settings of an image.
type settings struct {
	User, WorkingDir, StopSignal string
	Env, Entrypoint, Cmd         []string
	ExposedPorts                 map[string]any
	Labels                       map[string]string
	Healthcheck                  *struct {
		Test     []string
		Interval time.Duration
	}
}

func (b *builder) settings(image string) (s settings) {
	b.t.Helper()
	var about struct {
		Docker struct{ Config settings }
	}
	if err := json.Unmarshal([]byte(b.do("inspect", "--type", "image", image)), &about); err != nil {
		b.t.Fatal(err)
	}
	return about.Docker.Config
}

// faults returns the faults in the settings of a built image.
func (s *settings) faults() (found []string) {
	if s.Healthcheck == nil {
		return []string{"there is no health check"}
	}
	for what, is := range map[string][2]string{
		"user": {s.User, "65532:65532"}, "folder": {s.WorkingDir, "/var/lib/mcp-bridge"}, "signal": {s.StopSignal, "SIGTERM"},
		"entrypoint": {strings.Join(s.Entrypoint, " "), "mcp-bridge"}, "command": {strings.Join(s.Cmd, " "), "serve -c /etc/mcp-bridge/bridge.yaml"},
		"ports": {strings.Join(slices.Sorted(maps.Keys(s.ExposedPorts)), " "), "8808/tcp"}, "license": {s.Labels["org.opencontainers.image.licenses"], "MIT"},
		"health check": {strings.Join(s.Healthcheck.Test, " "), "CMD mcp-bridge status --health -c /etc/mcp-bridge/bridge.yaml"},
	} {
		if is[0] != is[1] {
			found = append(found, fmt.Sprintf("the %s is %q, want %q", what, is[0], is[1]))
		}
	}
	if !slices.Contains(s.Env, "HOME=/var/lib/mcp-bridge") {
		found = append(found, fmt.Sprintf("the environment is %q", s.Env))
	}
	return found
}

// files returns the files of a container, except those that buildah makes.
func (b *builder) files(container string) (all []string) {
	b.t.Helper()
	dir := b.do("mount", container)
	defer b.do("umount", container)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// Each image is built, without Docker. It has the right settings, runs as its user, passes its health check, and ends
// by its signal.
func TestBuild(t *testing.T) {
	need(t, "buildah")
	if os.Getuid() != 0 {
		if required("buildah") {
			t.Fatal("buildah is required by BRIDGE_TEST_REQUIRE, and only root may build an image without more ado: run the test as root")
		}
		t.Skip("only root may build an image without more ado")
	}
	b := newBuilder(t)
	for _, target := range targets {
		t.Run(target, func(t *testing.T) {
			b := &builder{t, b.dir}
			image := b.build(folder+"/Dockerfile", target)
			s := b.settings(image)
			for _, fault := range s.faults() {
				t.Error(fault)
			}
			container := b.do("from", "--pull-never", image)
			if target == "mcp-bridge" {
				if got, want := b.files(container), []string{"/etc/group", "/etc/passwd", "/etc/ssl/certs/ca-certificates.crt", "/usr/local/bin/mcp-bridge"}; !slices.Equal(got, want) {
					t.Errorf("the image has %q, want %q", got, want)
				}
			} else {
				if out := b.do("run", container, "--", "id"); out != "uid=65532(mcp-bridge) gid=65532(mcp-bridge)" && !strings.HasPrefix(out, "uid=65532(mcp-bridge) gid=65532(mcp-bridge) ") {
					t.Errorf("id says %q", out)
				}
				if out := b.do("run", container, "--", "sh", "-c", "cat /etc/passwd; touch $HOME/a /tmp/b && ls /tmp $HOME"); !strings.Contains(out, "somebody:x:1000") || !strings.Contains(out, "/tmp:\nb\n") || !strings.HasSuffix(out, "/var/lib/mcp-bridge:\na") {
					t.Errorf("what the base has in /etc/passwd, and what can be written: %q", out)
				}
			}
			for _, program := range map[string][]string{"node": {"node", "npm", "npx"}, "uv": {"python3", "uv", "uvx"}, "all": {"node", "npm", "npx", "python3", "uv", "uvx"}}[target] {
				if out := b.do("run", container, "--", program, "hello"); !strings.HasSuffix(out, " hello") {
					t.Errorf("%s says %q", program, out)
				}
			}
			b.serves(container, s)
		})
	}
	t.Run("broken", func(t *testing.T) {
		b := &builder{t, b.dir}
		text, err := os.ReadFile(folder + "/Dockerfile")
		if err != nil {
			t.Fatal(err)
		}
		before, after, _ := strings.Cut(string(text), "FROM scratch AS mcp-bridge\n")
		after = strings.Replace(after, "USER 65532:65532\n", "", 1)
		after = strings.Replace(after, `"--health", `, "", 1)
		after = strings.Replace(after, "EXPOSE 8808", "EXPOSE 8080", 1)
		file := filepath.Join(b.dir, "Dockerfile.broken")
		if err := os.WriteFile(file, []byte(before+"FROM scratch AS mcp-bridge\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
		s := b.settings(b.build(file, "mcp-bridge"))
		if found := s.faults(); len(found) != 3 {
			t.Errorf("of three mistakes are seen %q", found)
		}
	})
}

// serves runs the image's command, tries its health check, and ends it by its signal.
func (b *builder) serves(container string, s settings) {
	t := b.t
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	config := filepath.Join(t.TempDir(), "bridge.yaml")
	if err := os.WriteFile(config, []byte("listen: "+at+"\nservers: { one: { http: { url: \"https://tools.example.com/mcp\" } } }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) *exec.Cmd {
		return b.command(append([]string{"run", "-v", config + ":/etc/mcp-bridge/bridge.yaml:ro", container, "--"}, args...)...)
	}
	health := s.Healthcheck.Test[1:]
	served := run(append(s.Entrypoint, s.Cmd...)...)
	ended, log, _ := begins(t, served, func() *exec.Cmd { return run(health...) }, at)
	pid := program(t, served.Process.Pid)
	if pid == 0 {
		_ = served.Process.Kill()
		t.Fatal("the program is not found among the processes")
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if !strings.Contains(string(status), "\nUid:\t65532\t65532\t65532\t65532\n") || !strings.Contains(string(status), "\nGid:\t65532\t65532\t65532\t65532\n") {
		t.Errorf("it does not run as its user:\n%s", status)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v\n%s", err, log)
	}
}

// program returns the id of the bridge process that a process has started, or 0.
func program(t *testing.T, ancestor int) int {
	t.Helper()
	parents := map[int]int{}
	found := 0
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, rest, ok := strings.Cut(string(stat), ") "); ok {
			parents[pid], _ = strconv.Atoi(strings.Fields(rest)[1])
		}
	}
	for pid := range parents {
		if path, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); filepath.Base(path) != "mcp-bridge" {
			continue
		}
		for up := pid; up > 1; up = parents[up] {
			if up == ancestor {
				found = pid
			}
		}
	}
	return found
}

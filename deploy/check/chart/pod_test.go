package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// programs is the folder with the bridge and a server, which TestMain compiles.
var programs string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "programs-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		c := exec.Command("go", "build", "-o", dir+"/", "./cmd/bridge", "./examples/everything", "./examples/workflow-tools")
		c.Dir = "../../.."
		if out, err := c.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		if err := os.Rename(dir+"/bridge", dir+"/mcp-bridge"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		programs = dir
		return m.Run()
	}())
}

// A pod runs without a cluster: its volumes are folders, and its container is a process.
type pod struct {
	t       *testing.T
	spec    core.PodSpec
	dir     string // for volumes
	base    string // of URLs
	bridge  core.Container
	process *exec.Cmd
	path    string // path of the server
	log     *said
	ended   chan error
	// elsewhere maps addresses to others on this machine.
	elsewhere *strings.Replacer
}

// said is the output of a process so far.
type said struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// volume writes the files of a volume like the kubelet: ..data links to a folder and is replaced by a rename.
func (p *pod) volume(name string, files map[string]string) {
	p.t.Helper()
	at := filepath.Join(p.dir, name)
	fresh, err := os.MkdirTemp(p.dir, name+"-")
	if err != nil {
		p.t.Fatal(err)
	}
	check := func(err error) {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	check(os.MkdirAll(at, 0o755))
	for f, text := range files {
		check(os.WriteFile(filepath.Join(fresh, f), []byte(text), 0o440))
		if link := filepath.Join(at, f); !exists(link) {
			check(os.Symlink(filepath.Join("..data", f), link))
		}
	}
	check(os.Symlink(fresh, filepath.Join(at, "..data_tmp")))
	check(os.Rename(filepath.Join(at, "..data_tmp"), filepath.Join(at, "..data")))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// local replaces the paths of the container by paths of the folders.
func (p *pod) local(text string) string {
	for _, m := range p.bridge.VolumeMounts {
		if m.MountPath != "/tmp" { // this machine has /tmp, too
			text = strings.ReplaceAll(text, m.MountPath, filepath.Join(p.dir, m.Name))
		}
	}
	return p.elsewhere.Replace(text)
}

// secrets returns the values of keys in Secrets.
type secrets func(secret, key string) string

// given returns the values of a map, by SECRET/KEY.
func given(all map[string]string) secrets {
	return func(secret, key string) string { return all[secret+"/"+key] }
}

// prepare makes the volumes for the pod of a Deployment, and the process of its bridge, with the keys in its Secrets. It
// replaces addresses in the configuration by those that follow. It returns nil if the pod has no bridge.
func prepare(t *testing.T, made []object, d *apps.Deployment, keys secrets, elsewhere ...string) *pod {
	t.Helper()
	p := &pod{t: t, spec: d.Spec.Template.Spec, dir: t.TempDir(), path: "/mcp", log: new(said), ended: make(chan error, 1), elsewhere: strings.NewReplacer(elsewhere...)}
	for _, c := range p.spec.Containers {
		if c.Name == "mcp-bridge" {
			p.bridge = c
		}
	}
	if p.bridge.Name == "" {
		return nil
	}
	p.base = fmt.Sprintf("http://127.0.0.1:%d", p.bridge.Ports[0].ContainerPort)
	for _, v := range p.spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			for _, c := range all[core.ConfigMap](made) {
				if c.Name == v.ConfigMap.Name {
					files := map[string]string{}
					for name, text := range c.Data {
						files[name] = p.local(text)
					}
					p.volume(v.Name, files)
				}
			}
		case v.Projected != nil:
			p.volume(v.Name, p.secrets(v.Projected, keys))
		case v.Secret != nil:
			files := map[string]string{}
			for _, item := range v.Secret.Items {
				files[item.Path] = keys(v.Secret.SecretName, item.Key)
			}
			p.volume(v.Name, files)
		case v.EmptyDir != nil:
			if err := os.MkdirAll(filepath.Join(p.dir, v.Name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	args := make([]string, len(p.bridge.Args))
	for i, a := range p.bridge.Args {
		args[i] = p.local(a)
	}
	p.process = exec.Command(filepath.Join(programs, "mcp-bridge"), args...)
	p.process.Env = []string{"HOME=" + t.TempDir(), "PATH=" + programs}
	for _, e := range p.bridge.Env {
		value := e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "status.podIP" {
			value = "127.0.0.1"
		}
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			value = keys(e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key)
		}
		p.process.Env = append(p.process.Env, e.Name+"="+value)
	}
	return p
}

// start runs the bridge of a release's pod (see prepare).
func start(t *testing.T, made []object, keys map[string]string, elsewhere ...string) *pod {
	t.Helper()
	p := prepare(t, made, all[apps.Deployment](made)[0], given(keys), elsewhere...)
	p.process.Stdout, p.process.Stderr = p.log, p.log
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		err := p.process.Wait()
		p.ended <- err
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.process.Process.Kill() // it may have ended
		<-p.ended
		if t.Failed() {
			t.Logf("the log of the bridge:\n%s", p.log)
		}
	})
	p.until("the bridge is ready", func() bool { return p.probe(p.bridge.ReadinessProbe) == 200 })
	return p
}

// secrets are the files of a projected volume.
func (p *pod) secrets(v *core.ProjectedVolumeSource, keys secrets) map[string]string {
	files := map[string]string{}
	for _, s := range v.Sources {
		for _, item := range s.Secret.Items {
			files[item.Path] = keys(s.Secret.Name, item.Key)
		}
	}
	return files
}

// until waits for a condition.
func (p *pod) until(what string, is func() bool) {
	p.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	p.t.Logf("waiting until %s", what)
	for !is() {
		select {
		case err := <-p.ended:
			p.t.Fatalf("%s: the bridge has ended: %v", what, err)
		case <-tick.C:
		}
	}
}

// probe sends a probe like the kubelet and returns the status; 0 without an answer.
func (p *pod) probe(probe *core.Probe) int {
	r, err := http.NewRequest(http.MethodGet, p.base+probe.HTTPGet.Path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, h := range probe.HTTPGet.HTTPHeaders {
		if r.Header.Set(h.Name, h.Value); h.Name == "Host" {
			r.Host = h.Value
		}
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}

// post sends a message, and returns the status, the session and the answer.
func (p *pod) post(key, host, session, message string) (status int, of, body string) {
	return p.postTo(p.path, key, host, session, message)
}

// postTo sends a message to a path.
func (p *pod) postTo(path, key, host, session, message string) (status int, of, body string) {
	r, err := http.NewRequest(http.MethodPost, p.base+path, strings.NewReader(message))
	if err != nil {
		return 0, "", err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if r.Host = host; key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
		r.Header.Set("MCP-Protocol-Version", "2025-06-18")
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, "", err.Error()
	}
	return res.StatusCode, res.Header.Get("Mcp-Session-Id"), string(text)
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"pod","version":"1"}}}`

// session opens a session.
func (p *pod) session(key string) string {
	p.t.Helper()
	status, session, body := p.post(key, "", "", hello)
	if status != 200 || session == "" {
		p.t.Fatalf("initialize: %d %s", status, body)
	}
	if status, _, body := p.post(key, "", session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); status != 202 {
		p.t.Fatalf("initialized: %d %s", status, body)
	}
	return session
}

func call(id int, tool, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
}

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

const (
	key    = "the-key-of-the-agents"
	newKey = "another-key-of-the-agents"
)

// The pod of the chart works: keys come from the Secret and change with it, the probes are answered, and no call fails
// when the pod is stopped (O-077).
func TestPod(t *testing.T) {
	port := freePort(t)
	with := func(servers string) []object {
		return release(t, "", fmt.Sprintf("access: [{ name: agents, existingSecret: mcp-keys, key: agents }]\nport: %d\nconfig: { servers: { ours: { stdio: { command: everything, args: [stdio] } }%s } }", port, servers))
	}
	made := with("")
	p := start(t, made, map[string]string{"mcp-keys/agents": key + "\n"})
	if got := p.probe(p.bridge.LivenessProbe); got != 200 {
		t.Errorf("the probe of liveness: %d", got)
	}
	for _, path := range []string{"/health", "/ready"} { // probes of others' charts
		other := p.bridge.LivenessProbe.DeepCopy()
		other.HTTPGet.Path = path
		if got := p.probe(other); got != 200 {
			t.Errorf("%s: %d", path, got)
		}
	}
	for _, tc := range []struct {
		key, host string
		want      int
	}{{"", "", 401}, {"a-key-of-nobody-at-all", "", 401}, {key, "evil.example.com", 403}} {
		if got, _, body := p.post(tc.key, tc.host, "", hello); got != tc.want {
			t.Errorf("with the key %q and the host %q: %d %s, want %d", tc.key, tc.host, got, body, tc.want)
		}
	}
	session := p.session(key)
	if status, _, body := p.post(key, "", session, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); status != 200 || !strings.Contains(body, `"get-sum"`) {
		t.Errorf("tools/list: %d %s", status, body)
	}
	sum := func(key string) (int, bool) {
		status, _, body := p.post(key, "", session, call(3, "get-sum", `{"a":1,"b":2}`))
		return status, strings.Contains(body, "is 3.")
	}
	if status, ok := sum(key); status != 200 || !ok {
		t.Errorf("get-sum: %d %v", status, ok)
	}

	// The key in the Secret is changed: the session continues, with the new key only.
	for _, v := range p.spec.Volumes {
		if v.Projected != nil {
			p.volume(v.Name, p.secrets(v.Projected, given(map[string]string{"mcp-keys/agents": newKey + "\n"})))
		}
	}
	p.until("the old key is refused", func() bool { status, _ := sum(key); return status == 401 })
	if status, ok := sum(newKey); status != 200 || !ok {
		t.Errorf("the new key: %d %v, want 200 and the sum", status, ok)
	}

	p.reloadUnderLoad(with(", second: { stdio: { command: everything, args: [stdio] } }"), session)
	p.path = "/ours/mcp" // /mcp now has both servers
	p.stopUnderLoad()
}

// reloadUnderLoad replaces the ConfigMap like the kubelet, by a link: a server is added, and an open session continues
// without a failed call.
func (p *pod) reloadUnderLoad(more []object, session string) {
	p.t.Helper()
	text := p.local(all[core.ConfigMap](more)[0].Data["bridge.yaml"])
	p.volume("config", map[string]string{"bridge.yaml": text})
	calls := 0
	began := time.Now()
	p.until("the second server is there", func() bool {
		status, _, body := p.post(newKey, "", session, call(20+calls, "get-sum", `{"a":1,"b":2}`))
		if calls++; status != 200 || !strings.Contains(body, "is 3.") {
			p.t.Errorf("a call while the configuration is read: %d %s", status, body)
		}
		status, _, _ = p.postTo("/second/mcp", newKey, "", "", hello)
		return status == 200
	})
	p.t.Logf("read again after %v, with %d calls meanwhile", time.Since(began).Round(time.Millisecond), calls)
	if status, _, _ := p.postTo("/third/mcp", newKey, "", "", hello); status != 404 {
		p.t.Errorf("a server that is not there: %d", status)
	}
	// A faulty file changes nothing.
	p.volume("config", map[string]string{"bridge.yaml": text + "stdoi: {}\n"})
	p.until("the fault is in the log", func() bool { return strings.Contains(p.log.String(), "stdoi") })
	if status, _, _ := p.postTo("/second/mcp", newKey, "", "", hello); status != 200 {
		p.t.Errorf("the second server, after a file with a fault: %d", status)
	}
}

// stopUnderLoad stops the pod while clients call, like the kubelet. With preStop no more calls arrive, since the pod has
// left the endpoints; then follows SIGTERM. Calls in flight must succeed.
func (p *pod) stopUnderLoad() {
	p.t.Helper()
	const clients = 8
	var calls sync.WaitGroup
	var mu sync.Mutex // guards the variables below
	done, failed, running, leaving := 0, []string{}, 0, false
	for range clients {
		session := p.session(newKey)
		calls.Go(func() {
			for id := 10; ; id++ {
				mu.Lock()
				if leaving {
					mu.Unlock()
					return
				}
				running++
				mu.Unlock()
				status, _, body := p.post(newKey, "", session, call(id, "long-running-operation", `{"duration":2,"steps":2}`))
				mu.Lock()
				running--
				if done++; status != 200 || !strings.Contains(body, "completed") {
					failed = append(failed, strconv.Itoa(status)+" "+body)
				}
				mu.Unlock()
			}
		})
	}
	p.until("clients have had answers, and all of the calls that run are the bridge's: no other comes then", func() bool {
		mu.Lock()
		defer mu.Unlock()
		leaving = done >= clients && running == clients && p.underWay() == running
		return leaving
	})
	if err := p.process.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := <-p.ended; err != nil {
		p.t.Errorf("the bridge ended with %v", err)
	}
	calls.Wait()
	if len(failed) > 0 || done < 2*clients {
		p.t.Errorf("%d of %d calls failed: %q", len(failed), done, failed)
	}
}

// underWay returns the number of calls in flight.
func (p *pod) underWay() int {
	r, err := http.NewRequest(http.MethodGet, p.base+"/readyz", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+newKey)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return -1
	}
	defer res.Body.Close()
	var answer struct{ Bridge struct{ Calls int } }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return -1
	}
	return answer.Bridge.Calls
}

// Without the key of the Secret the pod does not serve: the test detects it.
func TestPodWithoutKey(t *testing.T) {
	dir := t.TempDir()
	made := release(t, "minimal-values.yaml", "")
	text := all[core.ConfigMap](made)[0].Data["bridge.yaml"]
	file := filepath.Join(dir, "bridge.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "/run/secrets/mcp-bridge", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func() (string, error) {
		out, err := exec.Command(filepath.Join(programs, "mcp-bridge"), "check", "-c", file).CombinedOutput()
		return string(out), err
	}
	out, err := check()
	if ended := (*exec.ExitError)(nil); !errors.As(err, &ended) || ended.ExitCode() != 2 || !strings.Contains(out, "token_file") {
		t.Errorf("without the key: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "agents"), []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := check(); err != nil {
		t.Errorf("with the key: %v\n%s", err, out)
	}
}

package integration

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/session"
	store "github.com/mcp-bridge/bridge/internal/cluster/redis"
	"github.com/mcp-bridge/bridge/internal/cluster/redis/redistest"
	"github.com/mcp-bridge/bridge/internal/porttest"
)

const clusterSecret = "secret of the test secret of the test"

// lease is that of the instances. A test that kills one waits for it to end, and on a busy machine no instance
// that lives may miss it.
const lease = 15 * time.Second

// fleet is several instances of the bridge behind nginx, which sends each request to
// the next one.
type fleet struct {
	t         *testing.T
	base      string // of nginx
	servers   map[string]any
	settings  map[string]any // more of them, for all
	server    string         // the path of the one that is meant, if there are several
	store     *redistest.Server
	example   string // whose nginx.conf is used; empty means cluster
	role      string // of those that are added; empty means all
	instances []*process
	tags      map[string]*process
	program   string // the bridge, as it was built; empty means with what finds races, if the tests have that
	lease     time.Duration
	forgetful bool // nginx keeps no connection to an instance that may have ended, and skips none that has: it answers no POST with 502 for these reasons
}

// newFleet returns a fleet without an instance yet.
func newFleet(t *testing.T, servers map[string]any) *fleet {
	t.Helper()
	return &fleet{t: t, servers: servers, store: redistest.Start(t), tags: map[string]*process{}, lease: lease}
}

// balance starts n instances behind nginx.
func (f *fleet) balance(n int) {
	f.t.Helper()
	conf, err := os.ReadFile("../examples/" + cmp.Or(f.example, "cluster") + "/nginx.conf")
	if err != nil {
		f.t.Fatal(err)
	}
	swap := []string{"daemon off;", "daemon off; master_process off;", "127.0.0.1:8808", "%[2]s", "http {", "http { client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;"}
	options := ""
	if f.forgetful {
		swap, options = append(swap, "keepalive 64;", ""), " max_fails=0"
	}
	for i := range n {
		swap = append(swap, fmt.Sprint("127.0.0.1:900", i+1), strings.TrimPrefix(f.add().base, "http://")+options)
	}
	f.base = startNginx(f.t, strings.NewReplacer(swap...).Replace(string(conf)))
	for _, p := range f.instances {
		f.sees(p, n)
	}
}

// add starts one more instance.
func (f *fleet) add() *process {
	f.t.Helper()
	cluster := map[string]any{
		"redis": "redis://" + f.store.Address, "secret": clusterSecret, "role": cmp.Or(f.role, "all"),
		"listen": "127.0.0.1:0", "advertise": "127.0.0.1", "lease": f.lease.String(),
	}
	file := configureNamed(f.t, with(map[string]any{
		"listen": "127.0.0.1:0", "drain": "1m", "servers": f.servers, "cluster": cluster,
	}, f.settings))
	p := f.run(file, porttest.Address(f.t)) // where another one may take its place
	f.instances = append(f.instances, p)
	return p
}

// run starts an instance with that file, which listens there.
func (f *fleet) run(file, listen string) *process {
	f.t.Helper()
	program := f.program
	if program == "" {
		program = bridgeProgram(f.t)
	}
	p := start(f.t, exec.Command(program, "serve", "--listen", listen, "-c", file))
	state := f.sees(p, 1)
	f.tags[gjson.Get(state, "cluster.instance").Str] = p
	return p
}

// again stops an instance as a service manager does, and starts it again at its address.
func (f *fleet) again(i int) {
	f.t.Helper()
	old := f.instances[i]
	old.stop(f.t)
	args := old.cmd.Args
	f.instances[i] = f.run(args[len(args)-1], strings.TrimPrefix(old.base, "http://"))
	for _, p := range f.instances {
		f.sees(p, len(f.instances))
	}
}

// sees waits until an instance is ready and sees so many members at least, and returns
// what it says of itself.
func (f *fleet) sees(p *process, members int) string {
	f.t.Helper()
	state, ok := eventually(func() (string, bool) {
		r, err := http.Get(p.base + "/readyz")
		if err != nil {
			return err.Error(), false
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		return string(body), err == nil && r.StatusCode == http.StatusOK && gjson.GetBytes(body, "cluster.members.#").Int() >= int64(members)
	})
	if !ok {
		f.t.Fatalf("the instance does not see %d members: %s", members, state)
	}
	return state
}

// seesOnly waits until an instance sees no more than so many members.
func (f *fleet) seesOnly(p *process, members int) {
	f.t.Helper()
	if state, ok := eventually(func() (int64, bool) {
		n := gjson.Parse(f.sees(p, 1)).Get("cluster.members.#").Int()
		return n, n <= int64(members)
	}); !ok {
		f.t.Fatalf("the instance sees %d members, and not %d", state, members)
	}
}

// legacyClient is a raw client with a session.
type legacyClient struct {
	base, session string
	next          atomic.Int64
	again         atomic.Int64 // how often it was to send a call again
}

// begin begins a session at an address.
func (f *fleet) begin(base string) *legacyClient {
	f.t.Helper()
	l := &legacyClient{base: base + f.server}
	res, body, err := insist(l.request(f.t.Context(), http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"raw","version":"1"}}}`))
	if err != nil || res.StatusCode != http.StatusOK {
		f.t.Fatalf("initialize = %v %s %v", res, body, err)
	}
	l.session = res.Header.Get("Mcp-Session-Id")
	if f.owner(l) == nil {
		f.t.Fatalf("the id %q has the tag of no instance", l.session)
	}
	return l
}

// owner returns the instance where the session began.
func (f *fleet) owner(l *legacyClient) *process { return f.tags[l.session[:6]] }

func (l *legacyClient) request(ctx context.Context, method, body string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, l.base+"/mcp", strings.NewReader(body))
	if err != nil {
		panic(err) // the address of a test
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if l.session != "" {
		r.Header.Set("Mcp-Session-Id", l.session)
	}
	return r
}

// post sends a request once.
func (l *legacyClient) post(ctx context.Context, body string) (*http.Response, []byte, error) {
	return send(l.request(ctx, http.MethodPost, body))
}

func send(r *http.Request) (*http.Response, []byte, error) {
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res, text, err
}

// comeAgain reports that nothing was done with a request, and that its client is to send it again: on a busy machine
// an instance may hear too late from another one.
func comeAgain(r *http.Response) bool {
	return r.StatusCode == http.StatusServiceUnavailable && r.Header.Get("Retry-After") != ""
}

// insist sends a request until it is not to come again, as its status or its error says.
func insist(r *http.Request) (res *http.Response, text []byte, err error) {
	eventually(func() (struct{}, bool) {
		if r.GetBody != nil {
			r.Body, _ = r.GetBody() // of a string: it never fails
		}
		res, text, err = send(r)
		return struct{}{}, err != nil || !comeAgain(res) && !bytes.Contains(text, []byte(`"retryAfterMs"`))
	})
	return res, text, err
}

// end ends the session, and returns the status.
func (l *legacyClient) end(t *testing.T) int {
	t.Helper()
	res, _, err := send(l.request(t.Context(), http.MethodDelete, ""))
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

// answers returns the answers to a request in a response, which is JSON or a stream.
func answers(body []byte, id string) (all []gjson.Result) {
	for line := range bytes.Lines(body) {
		line = bytes.TrimPrefix(bytes.TrimSpace(line), []byte("data: "))
		if m := gjson.ParseBytes(line); m.Get("id").Raw == id && (m.Get("result").Exists() || m.Get("error").Exists()) {
			all = append(all, m)
		}
	}
	return all
}

// call makes a call that has to succeed, and returns the text of its result.
func (f *fleet) call(l *legacyClient, tool string, args map[string]any) string {
	f.t.Helper()
	id := l.next.Add(1)
	params, _ := json.Marshal(map[string]any{"name": tool, "arguments": args})
	res, body, err := insist(l.request(f.t.Context(), http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, id, params)))
	if err != nil {
		f.t.Fatalf("%s: %v", tool, err)
	}
	all := answers(body, fmt.Sprint(id))
	if res.StatusCode != http.StatusOK || len(all) != 1 || !all[0].Get("result").Exists() {
		f.t.Fatalf("%s: status %d, %d answers: %s", tool, res.StatusCode, len(all), body)
	}
	return all[0].Get("result.content.0.text").Str
}

// kept waits until the store has of a session what it is asked for: records are written
// soon after they change.
func (f *fleet) kept(l *legacyClient, whole func(session.Record) bool) {
	f.t.Helper()
	client := f.store.Client()
	defer client.Close()
	s := store.New(client, store.Options{Prefix: "bridge", Owner: "test", Secrets: []string{clusterSecret}, Life: time.Hour})
	if h, ok := eventually(func() (session.Held, bool) {
		h, err := s.Find(f.t.Context(), session.Key(l.session))
		return h, err == nil && whole(h.Record)
	}); !ok {
		f.t.Fatalf("the store has %+v of the session", h.Record)
	}
}

// stateless makes a call of a client of 2026-07-28 at an instance and returns its answer.
func (f *fleet) stateless(base, server, tool string) gjson.Result {
	f.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},"name":%q,"arguments":{}}}`, tool)
	r, err := http.NewRequestWithContext(f.t.Context(), "POST", base+"/"+server+"/mcp", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool} {
		r.Header.Set(name, value)
	}
	a, _ := f.only(r)
	return a
}

// session makes a call of a session at an instance and returns its answer.
func (f *fleet) session(base, server, id, body string) (gjson.Result, string) {
	f.t.Helper()
	l := &legacyClient{base: base + "/" + server, session: id}
	a, res := f.only(l.request(f.t.Context(), http.MethodPost, body))
	return a, res.Header.Get("Mcp-Session-Id")
}

// only sends a request, and returns the one answer to it.
func (f *fleet) only(r *http.Request) (gjson.Result, *http.Response) {
	f.t.Helper()
	res, body, err := insist(r)
	if err != nil {
		f.t.Fatal(err)
	}
	all := answers(body, "1")
	if len(all) != 1 {
		f.t.Fatalf("%d answers: %d %s", len(all), res.StatusCode, body)
	}
	return all[0], res
}

// TestClusterKilled kills the owner of a session amid its calls, which reach it by other
// instances. Each call has exactly one answer (S-020); and when the lease of the owner is over, the session goes on
// (S-030).
func TestClusterKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, map[string]any{"fake": map[string]any{"stdio": map[string]any{"command": fakeProgram(t)}}})
	f.balance(3)
	l := f.begin(f.instances[0].base)
	l.base = f.instances[1].base
	f.call(l, "echo", map[string]any{"message": "before"})
	const atOnce = 20
	var calls sync.WaitGroup
	for i := range atOnce {
		calls.Go(func() {
			at := &legacyClient{base: f.instances[1+i%2].base, session: l.session}
			token := ""
			if i%4 < 2 { // half of them are streams when the owner goes
				token = fmt.Sprintf(`,"_meta":{"progressToken":%d}`, i)
			}
			_, body, err := insist(at.request(t.Context(), http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"hang","arguments":{"message":"%[1]d"}%s}}`, 100+i, token)))
			if all := answers(body, fmt.Sprint(100+i)); err != nil || len(all) != 1 || all[0].Get("error.data.bridge").Str != "upstream_lost" {
				t.Errorf("call %d has %d answers and %v: %s", i, len(all), err, body)
			}
		})
	}
	if n, ok := eventually(func() (int64, bool) {
		n := gjson.Get(f.sees(f.instances[0], 1), "bridge.calls").Int()
		return n, n == atOnce
	}); !ok {
		t.Fatalf("%d calls have reached the owner", n)
	}
	f.instances[0].cmd.Process.Kill()
	killed := time.Now()
	calls.Wait() // one that is sent before the others have seen the end would be lost, too
	f.call(l, "echo", map[string]any{"message": "after"})
	t.Logf("the session went on after %v", time.Since(killed))
	other := &legacyClient{base: f.instances[2].base, session: l.session}
	f.call(other, "echo", map[string]any{"message": "by the other"})
	taken := int64(0)
	for _, p := range f.instances[1:] {
		taken += gjson.Get(f.sees(p, 1), "cluster.taken_over").Int()
	}
	if taken != 1 {
		t.Errorf("%d instances have taken the session over", taken)
	}
	if !strings.Contains(f.instances[1].output.String()+f.instances[2].output.String(), "session taken over") {
		t.Error("nobody says that it has taken the session over")
	}
}

func with(m map[string]any, more map[string]any) map[string]any {
	for name, value := range more {
		m[name] = value
	}
	return m
}

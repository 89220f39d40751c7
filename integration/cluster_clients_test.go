package integration

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/scaletest"
)

// eraOf returns the server of a revision by the TypeScript SDK.
func eraOf(revision string) eraServer {
	for _, e := range eraServers() {
		if e.revision == revision && e.sdk != "go" {
			return e
		}
	}
	panic("no server of " + revision)
}

// playNewer plays the script of the era matrix by clients of the TypeScript SDK 2 through
// the fleet: one of each revision, or with the whole matrix each over all transports, and
// before servers of both eras. Their names are the revisions.
func (f *fleet) playNewer(t *testing.T, servers ...string) {
	for i, server := range servers {
		var cells []eraCell
		for c, client := range revisions {
			transports := transportsOf(client)[1:] // the first is stdio
			for j, transport := range transports {
				if whole || c%len(servers) == i && c%len(transports) == j {
					cells = append(cells, eraCell{
						SDK: "ts2", Client: client, Server: server, By: eraOf(server).sdk, Upstream: "stdio", Transport: transport,
						URL: f.base + "/" + server + "/" + map[string]string{"sse": "sse", "streamable": "mcp"}[transport],
					})
				}
			}
		}
		t.Run("server "+server, func(t *testing.T) {
			t.Parallel()
			playCells(t, cells, &outcomes{of: map[outcome]string{}})
		})
	}
}

// undertaker kills instances of a fleet when a script asks for it, and starts them again.
type undertaker struct {
	f *fleet

	mu     sync.Mutex // guards what follows
	marked []int64    // the requests that each instance had sent on then
	dead   int        // the instance that was killed, or -1
}

func (u *undertaker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := &legacyClient{session: r.URL.Query().Get("session")}
	what := strings.TrimPrefix(r.URL.Path, "/")
	switch what {
	case "mark":
		u.restart() // where a check has failed
		u.marked = u.sentOn()
	case "kept":
		u.f.kept(l, func(r session.Record) bool {
			return len(r.Level) > 0 && len(r.Subs) == 1 && len(r.Carry) == 1
		})
	case "restart":
		u.restart()
	default:
		if u.dead = u.chosen(what, l); u.dead < 0 {
			for range rand.IntN(3) { // so that not every call comes to the same instance
				if res, err := http.Get(u.f.base + "/healthz"); err == nil {
					_ = res.Body.Close()
				}
			}
			_, _ = io.WriteString(w, "no")
			return
		}
		p := u.f.instances[u.dead]
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	_, _ = io.WriteString(w, "done")
}

// restart starts again what was killed.
func (u *undertaker) restart() {
	if u.dead < 0 {
		return
	}
	p := u.f.instances[u.dead]
	args := p.cmd.Args
	u.f.instances[u.dead] = u.f.run(args[len(args)-1], strings.TrimPrefix(p.base, "http://"))
	u.dead = -1
	for _, p := range u.f.instances {
		u.f.sees(p, len(u.f.instances))
	}
}

// chosen returns the instance to kill, or -1.
func (u *undertaker) chosen(what string, l *legacyClient) int {
	if what == "front" {
		for i, n := range u.sentOn() {
			if n > u.marked[i] {
				return i
			}
		}
		return -1
	}
	return slices.Index(u.f.instances, u.f.owner(l))
}

// sentOn returns how many requests each instance has sent on to another one.
func (u *undertaker) sentOn() (all []int64) {
	for _, p := range u.f.instances {
		all = append(all, gjson.Get(u.f.sees(p, 1), "cluster.forwarded").Int())
	}
	return all
}

// TestClusterClients kills the instance that a client of an SDK is connected to, and then the
// owner of its session, each amid a call whose question it is about to answer. By itself the client
// comes back with Last-Event-ID, at whatever instance. In the first case it gets the answer
// of the call, in the second one error (S-020, S-030, S-031): the session goes on, with its
// level and its subscription. No call is executed twice (S-021).
func TestClusterClients(t *testing.T) {
	scaletest.Large(t)
	t.Parallel()
	remote := eraOf(legacy)
	f := newFleet(t, map[string]any{"remote": remote.kind(t, "streamable")})
	f.program, f.forgetful = bridgeProgram(t), true
	f.balance(3)
	control := httptest.NewServer(&undertaker{f: f, dead: -1})
	t.Cleanup(control.Close)
	var cells []eraCell
	for _, sdk := range clientSDKs(legacy) {
		if whole || sdk == "ts2" {
			cells = append(cells, eraCell{
				SDK: sdk, Client: legacy, Server: legacy, By: remote.sdk, Upstream: "streamable", Script: "deaths.mjs",
				Transport: "streamable", URL: f.base + "/mcp", Control: control.URL,
			})
		}
	}
	playCells(t, cells, &outcomes{of: map[outcome]string{}})
}

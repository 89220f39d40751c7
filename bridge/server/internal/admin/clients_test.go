package admin

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// reported is a report of a call.
func reported(principal, name, session, server string) *report.Report {
	from := &bridge.Caller{Principal: principal, Params: fmt.Appendf(nil, `{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":%q,"version":"1"}}`, name)}
	wire := gateway.WireStreamable
	if session == "" {
		wire = gateway.WireStateless
	}
	reports := report.New(func(report.Report) {}, nil, nil, nil)
	came := reports.Arrive(new(report.Arrival), wire, "", session, nil, "", nil)
	return &report.Report{Principal: principal, Session: session, Server: server, From: from, Call: came, Request: &jsonrpc.Message{Method: "tools/call"}}
}

func everything(string) bool { return true }

// A caller that invents names takes the places of no others, and gets places again after its names are forgotten.
func TestClientsNames(t *testing.T) {
	now := time.Now()
	c := NewClients(now)
	call := func(principal, name string) { c.Take(reported(principal, name, "", "s")) }
	const maxOwn = maxClients / 4
	calls := func(principal string) (names, shown int, unnamed uint64) {
		all, _ := c.Groups(now, func(p string) bool { return p == principal }, everything, nil)
		for _, one := range all {
			if one.Client == Unnamed {
				unnamed = one.Calls
			}
		}
		return c.clients.of[principal], len(all), unnamed
	}
	call("other", "a")
	for i := range 3 * maxOwn {
		call("rotates", fmt.Sprint("n", i))
	}
	call("rotates", "n0")
	if names, shown, unnamed := calls("rotates"); names != maxOwn+1 || shown != maxShown || unnamed != 2*maxOwn {
		t.Errorf("%d names, %d of them shown, %d calls without one", names, shown, unnamed)
	}
	if names, shown, unnamed := calls("other"); names != 1 || shown != 1 || unnamed != 0 {
		t.Errorf("another caller: %d names, %d of them shown, %d calls without one", names, shown, unnamed)
	}
	for range clientKept + 1 {
		c.Tick(now)
	}
	call("rotates", "late")
	if names, _, unnamed := calls("rotates"); names != 1 || unnamed != 0 {
		t.Errorf("later: %d names, %d calls without one", names, unnamed)
	}
}

// A client that calls very many servers takes the places of no other principals' clients.
func TestClientsServers(t *testing.T) {
	now := time.Now()
	c := NewClients(now)
	c.Take(reported("", "quiet", "", "s"))
	for i := range 2 * maxUses {
		c.Take(reported("other", "crawler", fmt.Sprint("id", i), fmt.Sprint("s", i)))
	}
	all, clients := c.Groups(now, everything, everything, nil)
	if len(all) != 2 || len(all[0].Servers) != maxUses/4 || all[0].Calls != 2*maxUses {
		t.Fatalf("%d clients, the first of them with %d servers and %d calls", len(all), len(all[0].Servers), all[0].Calls)
	}
	if c := all[1]; len(c.Servers) != 1 || c.Servers[0].Calls != 1 || clients["s"] != 1 {
		t.Errorf("%+v, %d clients", c, clients["s"])
	}
}

// The bridge's own requests are none of a client: those of its page, and of "run" on a pipe.
func TestClientsOwn(t *testing.T) {
	text, err := os.ReadFile("console/assets/mcp.js")
	if err != nil || !strings.Contains(string(text), "name: '"+consoleName+"'") {
		t.Errorf("mcp.js does not have the name: %v", err)
	}
	now := time.Now()
	c := NewClients(now)
	c.Take(reported("", consoleName, "id", "s"))
	run := reported("", runName, "", "s")
	run.Network = bridge.Pipe
	c.Take(run)
	own := []gateway.SessionStatus{{ID: "id", Client: consoleName + " 1"}, {ID: "run", Client: runName + " 1", Transport: gateway.WireStdio}}
	if all, clients := c.Groups(now, everything, everything, own); len(all) != 0 || len(clients) != 0 {
		t.Errorf("%+v, %v", all, clients)
	}
	run.Network = bridge.TCP
	if c.Take(run); len(c.clients.Keys()) != 1 {
		t.Error("the commands of another mcp-bridge are no client")
	}
}

// BenchmarkClients measures what counting adds to a call.
func BenchmarkClients(b *testing.B) {
	const many = 64
	for _, one := range []struct{ name, session string }{{"session", "1f0c9a7e"}, {"stateless", ""}} {
		c := NewClients(time.Now())
		var all [many]*report.Report
		for i := range all {
			session := one.session
			if session != "" {
				session = fmt.Sprintf("%08x", i)
			}
			all[i] = reported("agents", fmt.Sprint("client", i%8), session, fmt.Sprint("server", i%16))
		}
		b.Run(one.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.Take(all[i%many])
			}
		})
		b.Run(one.name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					c.Take(all[i%many])
				}
			})
		})
	}
}

package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/bridgetest"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
)

// The durations for a collector have the attributes of the conventions, and no value that a client or server invents.
func TestOperations(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	m := New("v1")
	m.Set([]string{"one"})
	if err := m.Export(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), "v1"); err != nil {
		t.Fatal(err)
	}
	request := func(method, name string) report.Report {
		return report.Report{Server: "one", Took: time.Second, Network: bridge.TCP, Revision: "2025-11-25", Speaks: "2026-07-28", Address: bridge.Address{Network: bridge.Pipe},
			Request: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"name":"`+name+`"}}`)}
	}
	failed := func(r report.Report, o bridge.Outcome, code int64) report.Report {
		r.Outcome, r.Code = o, code
		return r
	}
	listed := request("tools/list", "")
	listed.Answer = bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"echo"}]}}`)
	strange := request("tools/call", "echo")
	strange.Revision, strange.Speaks, strange.Network, strange.Server = "1999-01-01", "1999-01-01", "", ""
	for _, r := range []report.Report{
		listed, request("tools/call", "echo"), request("tools/call", "invented"), request("x/y", "z"), request(listen, ""), strange,
		failed(request("tools/call", "echo"), bridge.ToolFailed, 0), failed(request("tools/call", "echo"), bridge.TimedOut, 0),
		failed(request("prompts/get", "p"), bridge.ErrorAnswer, -32602), failed(request("prompts/get", "p"), bridge.ErrorAnswer, 4711), failed(request("prompts/get", "p"), bridge.ErrorAnswer, -32123),
	} {
		m.Take(&r)
		if r.Request.Method != listen && r.Server != "" { // no connection reports others
			m.Sent(&r)
		}
	}
	for _, err := range []error{nil, bridge.ErrIdle, bridge.ErrShutdown, fmt.Errorf("deleted: %w", bridge.ErrEnded), &bridge.Error{Kind: bridge.ErrLost}} {
		m.SessionEnded(&report.Session{Server: "one", Revision: "2025-11-25", Address: bridge.Address{Network: bridge.TCP}, Took: time.Minute, Err: err})
		m.ConnectionEnded(&report.Session{Server: "one", Revision: "1999-01-01", Address: bridge.Address{Network: bridge.TCP, Host: "127.0.0.1", Port: 80}, Took: time.Minute, Err: err})
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, metrics := range all.ScopeMetrics[0].Metrics {
		var lines strings.Builder
		for _, p := range metrics.Data.(metricdata.Histogram[float64]).DataPoints {
			fmt.Fprintf(&lines, "%d %s\n", p.Count, p.Attributes.Encoded(attribute.DefaultEncoder()))
		}
		got[metrics.Name] = lines.String()
	}
	const door = "mcp.protocol.version=2025-11-25,mcp_bridge.server=one,network.protocol.name=http,network.transport=tcp"
	const lane = "mcp.protocol.version=2026-07-28,mcp_bridge.server=one,network.transport=pipe"
	const peer = "mcp_bridge.server=one,network.protocol.name=http,network.transport=tcp,server.address=127.0.0.1,server.port=80\n"
	for name, want := range map[string]string{
		"mcp.server.session.duration": "4 " + door + "\n1 error.type=lost," + door + "\n", "mcp.client.session.duration": "4 " + peer + "1 error.type=lost," + peer,
	} {
		if sorted(got[name]) != sorted(want) {
			t.Errorf("%s:\n%swant\n%s", name, got[name], want)
		}
	}
	for name, rest := range map[string]string{"mcp.server.operation.duration": door, "mcp.client.operation.duration": lane} {
		want := []string{
			"1 mcp.method.name=tools/list," + rest,
			"1 gen_ai.operation.name=execute_tool,gen_ai.tool.name=echo,mcp.method.name=tools/call," + rest,
			"1 gen_ai.operation.name=execute_tool,gen_ai.tool.name=other,mcp.method.name=tools/call," + rest,
			"1 mcp.method.name=other," + rest,
			"1 error.type=tool_error,gen_ai.operation.name=execute_tool,gen_ai.tool.name=echo,mcp.method.name=tools/call," + rest,
			"1 error.type=timeout,gen_ai.operation.name=execute_tool,gen_ai.tool.name=echo,mcp.method.name=tools/call," + rest,
			"1 error.type=-32602,mcp.method.name=prompts/get," + rest + ",rpc.response.status_code=-32602",
			"2 error.type=_OTHER,mcp.method.name=prompts/get," + rest + ",rpc.response.status_code=_OTHER",
		}
		if name == "mcp.server.operation.duration" {
			want = append(want, "1 mcp.method.name=tools/call")
		}
		if n := strings.Count(got[name], "\n"); n != len(want) {
			t.Errorf("%s has %d values, want %d:\n%s", name, n, len(want), got[name])
		}
		for _, line := range want {
			if !strings.Contains("\n"+got[name], "\n"+line+"\n") {
				t.Errorf("%s has no %q:\n%s", name, line, got[name])
			}
		}
	}
}

// sorted returns the lines of a text in order.
func sorted(text string) string {
	lines := strings.SplitAfter(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Without a provider, nothing is recorded.
func TestOperationsOff(t *testing.T) {
	m := New("v1")
	m.Set([]string{"one"})
	r := report.Report{Server: "one", Request: bridgetest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)}
	m.Take(&r)
	m.Sent(&r)
	m.SessionEnded(&report.Session{Server: "one"})
	m.ConnectionEnded(&report.Session{Server: "one"})
}

func BenchmarkOperations(b *testing.B) {
	m := New("")
	m.Set([]string{"one"})
	if err := m.Export(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())), ""); err != nil {
		b.Fatal(err)
	}
	q := bridgetest.Parse(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`)
	r := report.Report{Server: "one", Request: q, Answer: q, Took: time.Millisecond, Revision: "2025-11-25"}
	b.ReportAllocs()
	for b.Loop() {
		m.Take(&r)
	}
}

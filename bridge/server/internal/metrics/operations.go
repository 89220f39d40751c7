package metrics

import (
	"context"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
)

// operations has the durations of requests and sessions for an OpenTelemetry collector, under the names of the semantic
// conventions for MCP. The values of attributes are as bounded as those of labels.
type operations struct {
	server metric.Float64Histogram // requests of clients, as the bridge answers them
	client metric.Float64Histogram // requests of the bridge to servers

	sessions    metric.Float64Histogram // sessions of clients
	connections metric.Float64Histogram // sessions with servers
}

// operationBuckets are in seconds, as the conventions for MCP say.
var operationBuckets = []float64{.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300}

// Export makes the methods that take reports and sessions record durations with a meter provider. version is the
// program's version. Export is called before those methods.
func (m *Metrics) Export(p metric.MeterProvider, version string) (err error) {
	meter := p.Meter("github.com/mcp-bridge/bridge", metric.WithInstrumentationVersion(version))
	histogram := func(name, about string) (h metric.Float64Histogram) {
		if err == nil {
			h, err = meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(operationBuckets...))
		}
		return h
	}
	o := &operations{
		server:      histogram("mcp.server.operation.duration", "How long requests of clients took, with any outcome."),
		client:      histogram("mcp.client.operation.duration", "How long requests to servers took, with any outcome."),
		sessions:    histogram("mcp.server.session.duration", "How long sessions of clients were."),
		connections: histogram("mcp.client.session.duration", "How long sessions with servers were."),
	}
	if err == nil {
		m.exported = o
	}
	return err
}

// Sent takes the report of a request to a server.
func (m *Metrics) Sent(r *report.Report) {
	s := (*m.servers.Load())[r.Server]
	if m.exported == nil || s == nil {
		return
	}
	method, known := methodIndex[r.Request.Method]
	if !known {
		method = methods - 1
	}
	tool := ""
	switch {
	case r.Request.Method == list.Tools.Method() && r.Answer != nil:
		s.own.learn(r.Request, r.Answer)
	case r.Request.Method == "tools/call":
		tool = s.own.of(r.Request.Name()).name
	}
	m.exported.sent(r, methodNames[method], tool)
}

// SessionEnded takes a session of a client that ended.
func (m *Metrics) SessionEnded(s *report.Session) {
	if m.exported != nil {
		ended(m.exported.sessions, s)
	}
}

// ConnectionEnded takes a session with a server that ended.
func (m *Metrics) ConnectionEnded(s *report.Session) {
	if m.exported != nil {
		ended(m.exported.connections, s)
	}
}

// ended records a session. A session that the client or the bridge ended is recorded without an error.
func ended(h metric.Float64Histogram, s *report.Session) {
	all := peer(s.Server, s.Revision, s.Address)
	if s.Err != nil {
		if o := bridge.OutcomeOf(s.Err); o != bridge.Cancelled && o != bridge.Failed {
			all = append(all, attribute.String("error.type", o.String()))
		}
	}
	h.Record(context.Background(), s.Took.Seconds(), metric.WithAttributeSet(attribute.NewSet(all...)))
}

// received records a request of a client.
func (o *operations) received(r *report.Report, server, method, tool string) {
	all := attributes(r, server, method, tool, r.Revision, bridge.Address{Network: r.Network})
	o.server.Record(context.Background(), r.Took.Seconds(), metric.WithAttributeSet(attribute.NewSet(all...)))
}

// sent records a request to a server.
func (o *operations) sent(r *report.Report, method, tool string) {
	all := attributes(r, r.Server, method, tool, r.Speaks, r.Address)
	o.client.Record(context.Background(), r.Took.Seconds(), metric.WithAttributeSet(attribute.NewSet(all...)))
}

// attributes returns the attributes of a request. tool is empty for other methods.
func attributes(r *report.Report, server, method, tool, revision string, at bridge.Address) []attribute.KeyValue {
	all := append(peer(server, revision, at), attribute.String("mcp.method.name", method))
	if tool != "" {
		all = append(all, attribute.String("gen_ai.tool.name", tool), attribute.String("gen_ai.operation.name", "execute_tool"))
	}
	switch {
	case r.Outcome == bridge.Answered:
	case r.Code == 0:
		all = append(all, attribute.String("error.type", r.Outcome.String()))
	default:
		code := errorCode(r.Code)
		all = append(all, attribute.String("error.type", code), attribute.String("rpc.response.status_code", code))
	}
	return all
}

// peer returns the attributes of the other end, in a slice with room for those that callers append.
func peer(server, revision string, at bridge.Address) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 12)
	if server != "" {
		all = append(all, attribute.String("mcp_bridge.server", server))
	}
	if slices.Contains(era.Supported(), revision) {
		all = append(all, attribute.String("mcp.protocol.version", revision))
	}
	if at.Network != "" {
		all = append(all, attribute.String("network.transport", at.Network))
	}
	if at.Network == bridge.TCP {
		all = append(all, attribute.String("network.protocol.name", "http"))
	}
	if at.Host != "" {
		all = append(all, attribute.String("server.address", at.Host), attribute.Int("server.port", at.Port))
	}
	return all
}

// errorCodes are the error codes of JSON-RPC and MCP. A server may send any other code.
var errorCodes = []int64{
	jsonrpc.CodeParse, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams, jsonrpc.CodeInternal, jsonrpc.CodeNoResource,
	jsonrpc.CodeHeaderMismatch, jsonrpc.CodeMissingCapability, jsonrpc.CodeUnsupportedVersion, -32042, // URL elicitation required
}

// errorCode returns a code of errorCodes as a text, and _OTHER for any other.
func errorCode(code int64) string {
	if !slices.Contains(errorCodes, code) {
		return "_OTHER"
	}
	return strconv.FormatInt(code, 10)
}

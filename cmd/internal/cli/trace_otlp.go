package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/backoff"
)

// collector sends spans or metrics to an OpenTelemetry collector, by OTLP over HTTP with protobuf. The exporters of the
// libraries include gRPC, which would make the program larger by half.
type collector struct {
	http  *remote.Client
	limit time.Duration // for one batch with its retries
	gzip  bool
}

var _ otlptrace.Client = (*collector)(nil)

const (
	defaultEndpoint = "http://localhost:4318"
	defaultLimit    = 10 * time.Second
	firstPause      = 500 * time.Millisecond // before the first retry; doubles with each retry
	maxReply        = 64 << 10               // maximum bytes of a response that are read
)

// An otlp is a kind of data for a collector, by its name in environment variables.
type otlp string

const (
	ofTraces  otlp = "TRACES"
	ofMetrics otlp = "METRICS"
)

// path returns the path below the address of a collector.
func (o otlp) path() string { return "v1/" + strings.ToLower(string(o)) }

// newCollector returns the collector that the environment describes.
func newCollector(of otlp) (*collector, error) {
	c := &collector{limit: defaultLimit}
	at := remote.Config{URL: defaultEndpoint + "/" + of.path()}
	if name, value := of.env("ENDPOINT"); value != "" {
		u, err := url.Parse(value)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil { // the value may contain a secret
			return nil, exit.Usagef("the environment variable %s must be a URL such as %s, without a password", name, defaultEndpoint)
		}
		if !strings.Contains(name, "_"+string(of)+"_") { // a variable for one kind has the whole address
			u = u.JoinPath(of.path())
		}
		at.URL = u.String()
	}
	if name, value := of.env("PROTOCOL"); value != "" && value != "http/protobuf" {
		return nil, wrongEnv(name, value, "http/protobuf, which collectors take at port 4318: nothing else is built in")
	}
	switch name, value := of.env("COMPRESSION"); value {
	case "", "none":
	case "gzip":
		c.gzip = true
	default:
		return nil, wrongEnv(name, value, "gzip or none")
	}
	if name, value := of.env("TIMEOUT"); value != "" {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 600_000 {
			return nil, wrongEnv(name, value, "a number of milliseconds from 1 to 600000")
		}
		c.limit = time.Duration(n) * time.Millisecond
	}
	name, value := of.env("HEADERS")
	var err error
	if at.Headers, err = otlpHeaders(value); err != nil {
		return nil, exit.Usagef("the environment variable %s %w", name, err)
	}
	_, at.CAFile = of.env("CERTIFICATE")
	_, at.CertFile = of.env("CLIENT_CERTIFICATE")
	_, at.KeyFile = of.env("CLIENT_KEY")
	if err = at.Validate(); err == nil {
		c.http, err = remote.New(at)
	}
	if err != nil {
		return nil, exit.Usagef("the environment variables OTEL_EXPORTER_OTLP_…: %w", err)
	}
	return c, nil
}

// env returns a setting of the exporter: the setting for its kind of data, else the general setting.
func (o otlp) env(name string) (from, value string) {
	return firstEnv("OTEL_EXPORTER_OTLP_"+string(o)+"_"+name, "OTEL_EXPORTER_OTLP_"+name)
}

// otlpHeaders parses name=value,name=value with percent-encoded values, as in the exporter's specification. Errors do
// not show values, which may be secrets.
func otlpHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	for i, pair := range strings.Split(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return nil, fmt.Errorf("must be NAME=VALUE,NAME=VALUE with percent-encoded values: part %d is not", i+1)
		}
		headers[strings.TrimSpace(name)] = value
	}
	return headers, nil
}

// Start implements otlptrace.Client.
func (c *collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *collector) Stop(context.Context) error {
	c.http.Close()
	return nil
}

// UploadTraces implements otlptrace.Client.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// TracesData has the wire format of ExportTraceServiceRequest.
	return c.send(ctx, &tracepb.TracesData{ResourceSpans: spans})
}

// send sends a batch. It retries temporary failures until the limit.
func (c *collector) send(ctx context.Context, batch proto.Message) error {
	body, err := proto.Marshal(batch)
	if err != nil {
		return err
	}
	if c.gzip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body) // writes to a Buffer succeed
		_ = z.Close()
		body = b.Bytes()
	}
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	for wait := firstPause; ; wait *= 2 {
		again, err := c.post(ctx, body)
		if err == nil || !again {
			return err
		}
		if backoff.For(ctx, wait) != nil {
			return err
		}
	}
}

// post sends a batch once. again reports whether a retry may succeed.
func (c *collector) post(ctx context.Context, body []byte) (again bool, err error) {
	r := c.http.Request(ctx, http.MethodPost, c.http.URL(), nil, body)
	r.Header["Content-Type"] = []string{"application/x-protobuf"}
	if c.gzip {
		r.Header["Content-Encoding"] = []string{"gzip"}
	}
	res, err := c.http.Do(r)
	if err != nil {
		return ctx.Err() == nil, err
	}
	_, _ = io.CopyN(io.Discard, res.Body, maxReply) // so that the connection can be used again
	_ = res.Body.Close()
	if res.StatusCode/100 == 2 {
		return false, nil
	}
	return slices.Contains([]int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, res.StatusCode),
		fmt.Errorf("the collector answers with HTTP %d", res.StatusCode)
}

package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/internal/porttest"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// stub is a collector that keeps what it gets.
type stub struct {
	*httptest.Server
	refuses int // of the first requests, with status
	status  int

	mu     sync.Mutex // guards the rest
	paths  []string
	header http.Header                  // of the last
	spans  []string                     // "service kind name"
	attrs  map[string]map[string]string // of the last span of each "kind name"
}

func newStub(t *testing.T, refuses, status int) *stub {
	s := &stub{refuses: refuses, status: status, attrs: map[string]map[string]string{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths, s.header = append(s.paths, r.URL.Path), r.Header
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case len(s.paths) <= s.refuses:
		w.WriteHeader(s.status)
		return
	}
	for _, of := range data.ResourceSpans {
		service := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				name := strings.TrimPrefix(span.Kind.String(), "SPAN_KIND_") + " " + span.Name
				s.spans, s.attrs[name] = append(s.spans, service+" "+name), textsOf(span.Attributes)
			}
		}
	}
}

// textsOf returns attributes as texts.
func textsOf(all []*commonpb.KeyValue) map[string]string {
	values := map[string]string{}
	for _, a := range all {
		values[a.Key] = a.Value.GetStringValue()
		if n, ok := a.Value.Value.(*commonpb.AnyValue_IntValue); ok {
			values[a.Key] = strconv.FormatInt(n.IntValue, 10)
		}
	}
	return values
}

func (s *stub) got() (paths, spans []string, header http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.paths), slices.Clone(s.spans), s.header
}

// quietly sets the environment, without what the machine has of OpenTelemetry.
func quietly(t *testing.T, env map[string]string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
}

// connect sends the spans of its calls where the environment says, all of them
// until it ends.
func TestTraces(t *testing.T) {
	for _, test := range []struct {
		name    string
		env     func(at string) map[string]string
		refuses int
		status  int
		path    string
		service string // empty when nothing is to come
	}{
		{"an endpoint", func(at string) map[string]string { return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": at} }, 0, 0, "/v1/traces", "mcp-bridge"},
		{"one below a path", func(at string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": at + "/otel/", "OTEL_SERVICE_NAME": "tools"}
		}, 0, 0, "/otel/v1/traces", "tools"},
		{"one for traces", func(at string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": at + "/x", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
				"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_RESOURCE_ATTRIBUTES": "service.name=mine"}
		}, 0, 0, "/x", "mine"},
		{"one that is busy", func(at string) map[string]string { return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": at} }, 1, 503, "/v1/traces", "mcp-bridge"},
		{"none", func(at string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_TRACES_EXPORTER": "none"}
		}, 0, 0, "", ""},
		{"disabled", func(at string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_SDK_DISABLED": "TRUE"}
		}, 0, 0, "", ""},
		{"nothing sampled", func(at string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": at, "OTEL_TRACES_SAMPLER": "always_off"}
		}, 0, 0, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			s, r := newStub(t, test.refuses, test.status), newRemote(t, 0)
			env := test.env(s.URL)
			env["OTEL_EXPORTER_OTLP_HEADERS"] = "x-key=top%2Dsecret, b=c"
			quietly(t, env)
			k := start(t.Context(), t, "connect", r.URL+"/mcp")
			k.ask(hello)
			k.ask(toolCall("echo"))
			if code, _, stderr := k.leave(); code != 0 || strings.Contains(stderr, "secret") {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
			paths, spans, header := s.got()
			if test.service == "" {
				if len(paths) != 0 {
					t.Errorf("the collector got %q", spans)
				}
				return
			}
			for _, want := range []string{"SERVER initialize", "SERVER tools/call echo", "CLIENT tools/call echo"} {
				if !slices.Contains(spans, test.service+" "+want) {
					t.Errorf("the collector got %q, not %s of %s", spans, want, test.service)
				}
			}
			at := r.Listener.Addr().(*net.TCPAddr)
			for span, want := range map[string]map[string]string{
				"SERVER tools/call echo": {"network.transport": "pipe"},
				"CLIENT tools/call echo": {"network.transport": "tcp", "network.protocol.name": "http", "server.address": at.IP.String(), "server.port": strconv.Itoa(at.Port)},
			} {
				got := s.attrs[span]
				for _, key := range []string{"mcp.method.name", "gen_ai.tool.name", "gen_ai.operation.name", "jsonrpc.request.id", "mcp.protocol.version"} {
					if got[key] == "" {
						t.Errorf("%s has no %s: %v", span, key, got)
					}
				}
				for key, value := range want {
					if got[key] != value {
						t.Errorf("%s: %s is %q, want %q", span, key, got[key], value)
					}
				}
			}
			if len(paths) <= test.refuses || paths[0] != test.path || header.Get("X-Key") != "top-secret" || header.Get("B") != "c" {
				t.Errorf("the collector was asked %q with %v", paths, header)
			}
		})
	}
}

// Without a collector calls are answered all the same, and what is lost is said.
func TestTracesCollectorDown(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	r := newRemote(t, 0)
	quietly(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + porttest.Address(t), "OTEL_BSP_SCHEDULE_DELAY": "1", "OTEL_EXPORTER_OTLP_TIMEOUT": "20"})
	k := start(t.Context(), t, "connect", r.URL+"/mcp")
	k.ask(hello)
	for range 50 {
		if a := k.ask(toolCall("echo")); !strings.Contains(a, `"called":"echo"`) {
			t.Errorf("a call is answered %s", a)
		}
	}
	code, _, stderr := k.leave()
	if code != 0 || !strings.Contains(stderr, "spans lost") {
		t.Errorf("exit code %d, stderr %q, want that spans are lost", code, stderr)
	}
}

// The end waits for a collector that does not answer as long as it may, and not
// longer; and faults are said once a minute.
func TestTracesGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		e := &exporter{SpanExporter: stuck{}, complaints: complaints{log: slog.New(slog.NewTextHandler(&out, nil)), lost: "spans lost"}}
		e.life, e.cancel = context.WithCancel(context.Background())
		sdk := sdktrace.NewTracerProvider(sdktrace.WithBatcher(e))
		_, span := sdk.Tracer("").Start(t.Context(), "x")
		span.End()
		began := time.Now()
		e.goodbye(sdk)
		if took := time.Since(began); took != goodbyeLimit {
			t.Errorf("the end took %v, want %v", took, goodbyeLimit)
		}
		for range 10 {
			time.Sleep(exportLogEvery / 4) // on the bubble's clock
			e.complain(errors.New("no"))
		}
		if n := strings.Count(out.String(), "spans lost"); n != 3 {
			t.Errorf("it is said %d times: %s", n, out.String())
		}
	})
}

// stuck is a collector that never answers.
type stuck struct{}

func (stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	<-ctx.Done()
	return ctx.Err()
}
func (stuck) Shutdown(context.Context) error { return nil }

// A collector that refuses for good is not asked again; one that is busy is, for
// as long as the batch has time.
func TestCollector(t *testing.T) {
	for _, test := range []struct {
		name            string
		refuses, status int
		timeout         string
		asked           int
		err             string
	}{
		{"busy twice", 2, 429, "", 3, ""},
		{"refuses", 9, 400, "", 1, "HTTP 400"},
		{"busy for long", 9, 502, "3499", 3, "HTTP 502"}, // at once, after 500 ms, and after 1.5 s; the next would be at 3.5 s
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stub{refuses: test.refuses, status: test.status, attrs: map[string]map[string]string{}}
				site := wiretest.NewSite(t, s)
				quietly(t, map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": test.timeout})
				c, err := newCollector(ofTraces)
				if err != nil {
					t.Fatal(err)
				}
				c.http, err = remote.New(remote.Config{URL: "http://127.0.0.1:4318/v1/traces",
					Dial: func(context.Context, string, string) (net.Conn, error) { return site.Dial(), nil }})
				if err != nil {
					t.Fatal(err)
				}
				e, err := otlptrace.New(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				err = e.ExportSpans(t.Context(), tracetest.SpanStubs{{Name: "x"}}.Snapshots())
				if paths, _, _ := s.got(); len(paths) != test.asked || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
					t.Errorf("asked %d times, %v", len(paths), err)
				}
				if err := e.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What the environment asks for and is not there is said by name; a secret is
// not.
func TestTracesRefused(t *testing.T) {
	for _, test := range []struct{ env, want string }{
		{"OTEL_TRACES_EXPORTER=zipkin", `OTEL_TRACES_EXPORTER is "zipkin": must be otlp, console or none`},
		{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "must be http/protobuf, which collectors take at port 4318"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json", `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is "http/json"`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4318", "OTEL_EXPORTER_OTLP_ENDPOINT must be a URL such as http://localhost:4318"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://me:secret@localhost", "without a password"},
		{"OTEL_EXPORTER_OTLP_HEADERS=secret", "OTEL_EXPORTER_OTLP_HEADERS must be NAME=VALUE"},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=%zzsecret", "part 1 is not"},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=secret%0A", "the value of a has a line break"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT=10s", "a number of milliseconds"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION=br", "must be gzip or none"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere/ca.pem", "/nowhere/ca.pem"},
		{"OTEL_EXPORTER_OTLP_CLIENT_KEY=/nowhere/key.pem", "belong together"},
		{"OTEL_TRACES_SAMPLER=sometimes", `OTEL_TRACES_SAMPLER is "sometimes": must be one of always_on`},
		{"OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=2", `OTEL_TRACES_SAMPLER_ARG is "2": must be a number from 0 to 1`},
		{"OTEL_RESOURCE_ATTRIBUTES=secret", "OTEL_RESOURCE_ATTRIBUTES"},
	} {
		refusesEnvironment(t, "OTEL_TRACES_EXPORTER=otlp "+test.env, test.want, func() error {
			_, _, err := traces(t.Context(), slog.New(slog.DiscardHandler), io.Discard)
			return err
		})
	}
}

func refusesEnvironment(t *testing.T, pairs, want string, begin func() error) {
	t.Run(pairs, func(t *testing.T) {
		env := map[string]string{}
		for _, pair := range strings.Fields(pairs) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		quietly(t, env)
		err := begin()
		if e, ok := errors.AsType[exit.Error](err); !ok || e.Code != exit.Usage || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

// The console takes spans too.
func TestTracesConsole(t *testing.T) {
	quietly(t, map[string]string{"OTEL_TRACES_EXPORTER": "console"})
	var out bytes.Buffer
	p, stop, err := traces(t.Context(), slog.New(slog.DiscardHandler), &out)
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("").Start(t.Context(), "a span")
	span.End()
	stop()
	if !strings.Contains(out.String(), `"Name":"a span"`) || !strings.Contains(out.String(), `"Value":"mcp-bridge"`) {
		t.Errorf("the console has %s", out.String())
	}
}

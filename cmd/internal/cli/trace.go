package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
)

const (
	// goodbyeLimit bounds the time to send the last spans.
	goodbyeLimit = 5 * time.Second
	// exportLogEvery is the interval of log lines about lost spans.
	exportLogEvery = time.Minute
)

// traces returns the tracer provider that OpenTelemetry's environment variables describe, or nil without these
// variables. The exporter "console" writes to w. stop sends the last spans.
func traces(ctx context.Context, log *slog.Logger, w io.Writer) (p trace.TracerProvider, stop func(), err error) {
	to, err := tracesTo()
	if err != nil || to == "" {
		return nil, func() {}, err
	}
	if err := sampling(); err != nil {
		return nil, nil, err
	}
	e := &exporter{complaints: complaints{log: log, lost: "spans lost"}}
	if to == "console" {
		e.out = terminal.NewOutput(w)
		e.SpanExporter, err = stdouttrace.New(stdouttrace.WithWriter(e.out))
	} else {
		var c *collector
		if c, err = newCollector(ofTraces); err == nil {
			e.SpanExporter, err = otlptrace.New(ctx, c)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	r, err := self(ctx)
	if err != nil {
		return nil, nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(e.complain))
	e.life, e.cancel = context.WithCancel(context.Background())
	sdk := sdktrace.NewTracerProvider(sdktrace.WithBatcher(e), sdktrace.WithResource(r))
	return sdk, func() { e.goodbye(sdk) }, nil
}

// self returns the description of this program for collectors. Attributes from the environment take precedence.
func self(ctx context.Context) (*resource.Resource, error) {
	r, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "mcp-bridge"), attribute.String("service.version", server.Version())), resource.WithFromEnv())
	if err != nil {
		return nil, exit.Usagef("the environment variable OTEL_RESOURCE_ATTRIBUTES must be NAME=VALUE,NAME=VALUE with percent-encoded values") // the library's error shows the values
	}
	return r, nil
}

// tracesTo returns the exporter that the environment names: otlp, console, or "" for none.
func tracesTo() (string, error) {
	if _, off := firstEnv("OTEL_SDK_DISABLED"); strings.EqualFold(off, "true") {
		return "", nil
	}
	_, endpoint := ofTraces.env("ENDPOINT")
	switch name, to := firstEnv("OTEL_TRACES_EXPORTER"); {
	case to == "none", to == "" && endpoint == "":
		return "", nil
	case to == "":
		return "otlp", nil
	case to == "otlp", to == "console":
		return to, nil
	default:
		return "", wrongEnv(name, to, "otlp, console or none")
	}
}

// firstEnv returns the first environment variable that is set.
func firstEnv(names ...string) (name, value string) {
	for _, name = range names {
		if value = strings.TrimSpace(os.Getenv(name)); value != "" {
			return name, value
		}
	}
	return name, ""
}

func wrongEnv(name, value, rule string) error {
	return exit.Usagef("the environment variable %s is %.40q: must be %s", name, value, rule)
}

// sampling checks the name and the argument of the sampler, because the library would silently use another sampler.
func sampling() error {
	name, sampler := firstEnv("OTEL_TRACES_SAMPLER")
	known := []string{"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}
	if sampler != "" && !slices.Contains(known, strings.ToLower(sampler)) {
		return wrongEnv(name, sampler, "one of "+strings.Join(known, ", "))
	}
	arg, ratio := firstEnv("OTEL_TRACES_SAMPLER_ARG")
	if v, err := strconv.ParseFloat(ratio, 64); strings.HasSuffix(strings.ToLower(sampler), "traceidratio") && ratio != "" && (err != nil || !(v >= 0 && v <= 1)) {
		return wrongEnv(arg, ratio, "a number from 0 to 1")
	}
	return nil
}

// exporter sends spans. It logs failures at intervals, and does not return them.
type exporter struct {
	sdktrace.SpanExporter
	complaints
	out    *terminal.Output // of the exporter "console", where spans find no room if nobody reads; nil with other exporters
	life   context.Context  // ends after goodbyeLimit
	cancel context.CancelFunc
}

var _ sdktrace.SpanExporter = (*exporter)(nil)

// ExportSpans implements sdktrace.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.complain(err)
	}
	return nil
}

// goodbye sends the last spans and shuts the provider down.
func (e *exporter) goodbye(sdk *sdktrace.TracerProvider) {
	hurry := time.AfterFunc(goodbyeLimit, e.cancel)
	defer hurry.Stop()
	if err := sdk.Shutdown(context.Background()); err != nil {
		e.complain(err)
	}
	e.cancel()
	if e.out != nil {
		e.out.Close()
	}
}

// complaints logs the failures of an exporter.
type complaints struct {
	log  *slog.Logger
	lost string // what is lost

	mu   sync.Mutex // guards said
	said time.Time
}

// complain logs an error, at most once per exportLogEvery.
func (c *complaints) complain(err error) {
	c.mu.Lock()
	quiet := !c.said.IsZero() && time.Since(c.said) < exportLogEvery
	if !quiet {
		c.said = time.Now()
	}
	c.mu.Unlock()
	if !quiet {
		c.log.Warn(c.lost+": cannot send them to the collector", "err", fmt.Sprintf("%.300s", err.Error()))
	}
}

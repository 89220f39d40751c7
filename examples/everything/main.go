// Everything is a reference MCP server for demonstrations and tests. It offers every feature of the protocol, like the
// npm package @modelcontextprotocol/server-everything. Its transports are stdio, HTTP+SSE and Streamable HTTP. It
// serves legacy clients (2024-11-05 to 2025-11-25) and modern clients (2026-07-28).
//
// The kinds bridged and bridged-stdio use the bridge as a library in the same process: one server, over every
// transport.
//
//	go run ./examples/everything stdio|sse|streamableHttp|bridged|bridged-stdio [flags]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "everything:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends or, over stdio, until stdin ends.
func run(ctx context.Context, args, environ []string, stdin io.ReadCloser, stdout, stderr io.Writer) error {
	s, err := parse(args, environ, stderr)
	if err != nil {
		return err
	}
	switch s.kind {
	case kindStdio:
		return serveStdio(ctx, s, stdin, stdout)
	case kindBridged, kindBridgedStdio:
		return serveBridged(ctx, s, stdin, stdout, stderr)
	}
	return serveHTTP(ctx, s, stderr)
}

// These constants are the kinds of transport, as in the command line.
const (
	kindStdio      = "stdio"
	kindSSE        = "sse"
	kindStreamable = "streamableHttp"
	// kindBridged and kindBridgedStdio use the bridge in the same process, as a library.
	kindBridged      = "bridged"
	kindBridgedStdio = "bridged-stdio"
)

// These constants are the eras to which the server can be restricted.
const (
	eraBoth   = "both"
	eraLegacy = "legacy"
	eraModern = "modern"
)

type settings struct {
	kind        string
	port        int           // 0 means any free port
	era         string        // eraBoth, eraLegacy or eraModern
	pageSize    int           // items per page of a list; 0 means the SDK's default of 1000
	interval    time.Duration // default time between periodic messages
	sessionIdle time.Duration // idle timeout of a legacy Streamable HTTP session; 0 means none
	environ     []string      // the variables that get-env shows
	log         *slog.Logger  // never stdout, which carries the protocol
}

func parse(args, environ []string, stderr io.Writer) (settings, error) {
	s := settings{kind: kindStdio, environ: environ}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		s.kind, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("everything", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: everything [stdio|sse|streamableHttp|bridged|bridged-stdio] [flags]")
		flags.PrintDefaults()
	}
	port, portErr := defaultPort(environ)
	flags.IntVar(&s.port, "port", port, "port on 127.0.0.1 for the HTTP kinds; the environment's PORT is the default, 0 picks one")
	flags.StringVar(&s.era, "era", eraBoth, "revisions to speak: both, legacy (to 2025-11-25) or modern (2026-07-28)")
	flags.IntVar(&s.pageSize, "page-size", 0, "items per page of each listing; 0 puts all on one page")
	flags.DurationVar(&s.interval, "interval", 5*time.Second, "time between periodic log messages and resource updates")
	flags.DurationVar(&s.sessionIdle, "session-idle", 30*time.Minute, "end a silent Streamable HTTP session after this time; 0 never does")
	verbose := flags.Bool("verbose", false, "log what the server does, to stderr")
	if err := flags.Parse(args); err != nil {
		return settings{}, err
	}
	level := slog.LevelWarn
	if *verbose {
		level = slog.LevelDebug
	}
	s.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	if s.onStdio() || s.port != port {
		portErr = nil // PORT is not used
	}
	return s, errors.Join(s.validate(), portErr, leftOver(flags.Args()))
}

func (s settings) onStdio() bool { return s.kind == kindStdio || s.kind == kindBridgedStdio }

func (s settings) validate() error {
	var errs []error
	if kinds := []string{kindStdio, kindSSE, kindStreamable, kindBridged, kindBridgedStdio}; !slices.Contains(kinds, s.kind) {
		errs = append(errs, fmt.Errorf("unknown transport %q: use one of %s", s.kind, strings.Join(kinds, ", ")))
	}
	if eras := []string{eraBoth, eraLegacy, eraModern}; !slices.Contains(eras, s.era) {
		errs = append(errs, fmt.Errorf("unknown era %q: use one of %s", s.era, strings.Join(eras, ", ")))
	}
	if s.kind == kindSSE && s.era == eraModern {
		errs = append(errs, errors.New("the sse transport has no modern era: revision 2026-07-28 defines stdio and Streamable HTTP only"))
	}
	if !s.onStdio() && (s.port < 0 || s.port > 65535) {
		errs = append(errs, fmt.Errorf("port is %d: must be between 0 and 65535", s.port))
	}
	if s.pageSize < 0 {
		errs = append(errs, fmt.Errorf("page-size is %d: must not be negative", s.pageSize))
	}
	if s.interval <= 0 {
		errs = append(errs, fmt.Errorf("interval is %v: must be positive", s.interval))
	}
	return errors.Join(errs...)
}

func leftOver(args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q: the transport comes first, flags follow", args[0])
}

func defaultPort(environ []string) (int, error) {
	const usual = 3001
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, "PORT="); ok && v != "" {
			port, err := strconv.Atoi(v)
			if err != nil {
				return usual, fmt.Errorf("the environment's PORT is %q: must be a number", v)
			}
			return port, nil
		}
	}
	return usual, nil
}

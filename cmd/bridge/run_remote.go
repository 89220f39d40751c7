package main

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/adapters/httpclient"
	"github.com/mcp-bridge/bridge/config"
)

// addRemoteFlags adds the flags about a server that is named by its URL.
func addRemoteFlags(f *pflag.FlagSet, headers *[]string, transport *string) {
	f.StringArrayVarP(headers, "header", "H", nil, "'NAME: VALUE' to send to URL; ${NAME} is taken from the environment (repeatable)")
	f.StringVar(transport, "transport", httpclient.TransportAuto, "what URL speaks: streamable, sse, or auto, which finds out")
}

// addEraFlag adds the flag about a server that no file describes.
func addEraFlag(f *pflag.FlagSet, era *string) {
	f.StringVar(era, "era", config.EraAuto, "revisions to speak to the server: legacy (to 2025-11-25), modern (from 2026-07-28), or auto, which finds out")
}

// addOfferFlag adds the flag about what clients of such a server can use.
func addOfferFlag(f *pflag.FlagSet, offer *string) {
	f.StringVar(offer, "offer", config.OfferAll, "revisions for clients: all, or legacy (to 2025-11-25), also for clients that choose badly")
}

// remoteServer makes the configuration of a remote server.
func remoteServer(address, share string, headers []string, transport string) (config.Server, error) {
	own, err := parseHeaders(headers, os.LookupEnv)
	if err != nil {
		return config.Server{}, err
	}
	name := "server"
	if u, err := url.Parse(address); err == nil {
		name = serverName(u.Hostname())
	}
	s := config.DefaultServer(name, share)
	s.Share = share // also when it is wrong, so that it is refused
	s.HTTP = &httpclient.Config{URL: address, Headers: own, Transport: transport}
	return s, nil
}

// hinting returns a logger that says how a command line has headers, where an
// error asks for them: who gave a URL has no file to write them into.
func hinting(log *slog.Logger) *slog.Logger { return slog.New(hinted{log.Handler()}) }

type hinted struct{ slog.Handler }

var _ slog.Handler = hinted{}

// Handle implements slog.Handler.
func (h hinted) Handle(ctx context.Context, r slog.Record) error {
	const asks, hint = "configure headers for it", " (--header 'Authorization: Bearer …')"
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && strings.Contains(err.Error(), asks) {
			a.Value = slog.StringValue(strings.ReplaceAll(err.Error(), asks, asks+hint))
		}
		out.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs implements slog.Handler.
func (h hinted) WithAttrs(attrs []slog.Attr) slog.Handler { return hinted{h.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (h hinted) WithGroup(name string) slog.Handler { return hinted{h.Handler.WithGroup(name)} }

package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/config"
)

// addOfferFlag adds the flag about what clients of such a server can use.
func addOfferFlag(f *pflag.FlagSet, offer *string) {
	f.StringVar(offer, "offer", config.OfferAll, "revisions for clients: all, or legacy (to 2025-11-25), also for clients that choose badly")
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

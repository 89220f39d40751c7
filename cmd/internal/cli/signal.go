package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/config/reload"
)

// stopSignals are the signals that ask the bridge to stop. On a terminal SIGHUP,
// which is the terminal's end, is one. Elsewhere it is what scripts send to have a
// configuration read again: it stops nothing.
func stopSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	in, _ := terminal.Is(os.Stdin)
	err, _ := terminal.Is(os.Stderr)
	switch {
	case signal.Ignored(syscall.SIGHUP): // by nohup
	case in || err:
		all = append(all, syscall.SIGHUP)
	default:
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // not to end by it
	}
	return all
}

// hangups has the configuration read again at each SIGHUP, until ctx ends. Without a file
// it is logged. The result is called to wait for that.
func hangups(ctx context.Context, log *slog.Logger, again *reload.Reloader) (wait func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return func() {}
	}
	came, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(came, syscall.SIGHUP)
	go func() {
		defer close(done)
		defer signal.Stop(came)
		for {
			select {
			case <-ctx.Done():
				return
			case <-came:
				if again != nil {
					_, _ = again.Reload() // it is logged
					continue
				}
				log.Warn("SIGHUP is ignored: there is no configuration file to read again")
			}
		}
	}()
	return func() { <-done }
}

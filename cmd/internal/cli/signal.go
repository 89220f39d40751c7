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

// stopSignals returns the signals that stop the bridge. On a terminal, SIGHUP is such a signal, because it means that
// the terminal closed. Elsewhere, SIGHUP means reload.
func stopSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	in, _ := terminal.Is(os.Stdin)
	err, _ := terminal.Is(os.Stderr)
	switch {
	case signal.Ignored(syscall.SIGHUP): // under nohup
	case in || err:
		all = append(all, syscall.SIGHUP)
	default:
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // replaces the default of SIGHUP, which ends the process
	}
	return all
}

// hangups reloads the configuration at each SIGHUP until ctx ends. Without a file, it only logs a warning. wait waits
// for the end of hangups.
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
					_, _ = again.Reload() // Reload logs its result
					continue
				}
				log.Warn("SIGHUP is ignored: there is no configuration file to read again")
			}
		}
	}()
	return func() { <-done }
}

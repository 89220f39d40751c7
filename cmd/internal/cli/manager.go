package cli

import (
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/cmd/internal/systemd"
)

// manager reports the state of the bridge to the service manager, if there is one.
type manager struct {
	*systemd.Notifier
	log *slog.Logger

	mu     sync.Mutex // guards status
	status func() string
}

func newManager(log *slog.Logger) *manager {
	return &manager{Notifier: systemd.FromEnvironment(), log: log}
}

func (m *manager) said(err error) {
	if err != nil {
		m.log.Warn("service manager", "err", err)
	}
}

// ready reports that the bridge serves. It sends status now and after each reload.
func (m *manager) ready(status func() string) {
	m.mu.Lock()
	m.status = status
	m.mu.Unlock()
	m.said(m.Ready("serving " + status()))
}

// waiting reports the reason why the bridge does not serve yet, and requests more time.
func (m *manager) waiting() {
	m.said(m.Starting("waiting for the store of the cluster", 2*stillWaiting))
}

// stillWaiting is the interval of calls of waiting.
const stillWaiting = 20 * time.Second

// reloading reports a reload that lasts until over is called.
func (m *manager) reloading() (over func()) {
	m.said(m.Reloading())
	return func() {
		m.mu.Lock()
		status := m.status
		m.mu.Unlock()
		if status != nil { // otherwise, ready follows
			m.said(m.Ready("serving " + status()))
		}
	}
}

func (m *manager) stopping() { m.said(m.Stopping()) }

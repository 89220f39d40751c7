package cli

import (
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/cmd/internal/systemd"
)

// manager tells the service manager the state of the bridge, if there is one.
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

// ready says that the bridge serves what status says, now and after each reload.
func (m *manager) ready(status func() string) {
	m.mu.Lock()
	m.status = status
	m.mu.Unlock()
	m.said(m.Ready("serving " + status()))
}

// waiting says what the bridge waits for before it serves, and asks for more time.
func (m *manager) waiting() {
	m.said(m.Starting("waiting for the store of the cluster", 2*stillWaiting))
}

// stillWaiting is how often that is said.
const stillWaiting = 20 * time.Second

// reloading says that the configuration is being read again, until over is called.
func (m *manager) reloading() (over func()) {
	m.said(m.Reloading())
	return func() {
		m.mu.Lock()
		status := m.status
		m.mu.Unlock()
		if status != nil { // else ready is still to come
			m.said(m.Ready("serving " + status()))
		}
	}
}

func (m *manager) stopping() { m.said(m.Stopping()) }

package main

import (
	"log/slog"
	"sync"

	"github.com/mcp-bridge/bridge/internal/systemd"
)

// manager tells the service manager how the bridge fares, if there is one.
type manager struct {
	*systemd.Notifier
	log *slog.Logger

	mu     sync.Mutex // guards status
	status string
}

func newManager(log *slog.Logger) *manager {
	return &manager{Notifier: systemd.FromEnvironment(), log: log}
}

func (m *manager) said(err error) {
	if err != nil {
		m.log.Warn("service manager", "err", err)
	}
}

// ready says that the bridge serves what status says.
func (m *manager) ready(status string) {
	m.mu.Lock()
	m.status = "serving " + status
	m.mu.Unlock()
	m.said(m.Ready("serving " + status))
}

// reloading says that the configuration is being read again, until over is called.
func (m *manager) reloading() (over func()) {
	m.said(m.Reloading())
	return func() {
		m.mu.Lock()
		status := m.status
		m.mu.Unlock()
		m.said(m.Ready(status))
	}
}

func (m *manager) stopping() { m.said(m.Stopping()) }

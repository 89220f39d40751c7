package main

import (
	"os"
	"os/signal"
	"syscall"
)

// stopSignals are the signals that ask the bridge to stop. SIGHUP, the end of
// the terminal, is one unless the bridge was started to survive it (nohup).
func stopSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// Package porttest reserves ports for tests whose programs cannot be asked where they listen: they are told a port,
// or their address has to be known before they start.
package porttest

import (
	"fmt"
	"testing"
)

// Reserve returns a port of this machine that is the test's own until it ends. Programs can listen there, one after
// the other; whoever asks for any port, here or in another process, gets a different one.
func Reserve(t testing.TB) int {
	t.Helper()
	port, release, err := reserve()
	if err != nil {
		t.Fatalf("no port: %v", err)
	}
	t.Cleanup(release)
	return port
}

// Address returns 127.0.0.1 with a port of Reserve.
func Address(t testing.TB) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", Reserve(t))
}

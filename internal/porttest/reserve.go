// Package porttest reserves ports for tests of programs that cannot report where they listen. Such a program gets its
// port from the test, or its address must be known before it starts.
package porttest

import (
	"fmt"
	"testing"
)

// Reserve returns a port of this machine that only the test has until the test ends. Programs can listen on the port
// one after another. Whoever asks for any port, in this process or another, gets a different port.
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

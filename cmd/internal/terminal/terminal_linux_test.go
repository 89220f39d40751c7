package terminal_test

import (
	"bytes"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal/terminaltest"
)

// A real terminal is recognized, with its width.
func TestIs(t *testing.T) {
	if is, columns := terminal.Is(terminaltest.New(t, 70).File); !is || columns != 70 {
		t.Errorf("a terminal: %t, %d columns, want one of 70", is, columns)
	}
	if is, columns := terminal.Is(terminaltest.New(t, 0).File); !is || columns != 80 {
		t.Errorf("a terminal that does not say its width: %t, %d columns, want one of 80", is, columns)
	}
	if is, columns := terminal.Is(&bytes.Buffer{}); is || columns != 0 {
		t.Errorf("a buffer: %t, %d columns, want no terminal", is, columns)
	}
}

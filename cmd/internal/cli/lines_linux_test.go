package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal/terminaltest"
)

// A line that cannot be read is shown on a terminal; elsewhere its values are hidden, since a log may get it.
func TestFaultyLine(t *testing.T) {
	path := file(t, "bridge.yaml", "servers:\n  a: { stdio: { command: npx, args: [-y, @scope/thing, --token, hunter2] } }\n")
	says(t, exit.Usage, "*", "command: ***, args: [-*, @*****/*****, --*****, *******] } }", "check", path)
	tty := terminaltest.New(t, 200)
	if code := run(t.Context(), []string{"check", path}, io.Discard, tty.File); code != exit.Usage {
		t.Errorf("exit code %d", code)
	}
	if text := tty.Lines(4); !strings.Contains(text, "command: npx, args: [-y, @scope/thing, --*****, *******] } }") {
		t.Errorf("on a terminal: %s", text)
	}
}

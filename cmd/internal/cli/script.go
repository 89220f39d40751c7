package cli

import (
	"os"
	"runtime"

	"github.com/mcp-bridge/bridge/internal/script"
	"github.com/mcp-bridge/bridge/internal/script/child"
)

// runScript runs a script of a model and ends the process, if the process was started for that.
func runScript() {
	if len(os.Args) == 2 && os.Args[1] == script.Argument {
		os.Exit(child.Main())
	}
}

// scriptProgram returns this program, which runs scripts as a child process; empty if it is unknown.
func scriptProgram() string {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe" // also after an update has replaced the file
	}
	name, err := os.Executable()
	if err != nil {
		return ""
	}
	return name
}

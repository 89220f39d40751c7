// Package script lets a program run the scripts that models write, for config.ToolsCode. The bridge runs each script in
// a child process, which is the same program again: call Main first in main, and set config.Config.Scripts to Program.
package script

import (
	"os"
	"runtime"

	"github.com/mcp-bridge/bridge/internal/script"
	"github.com/mcp-bridge/bridge/internal/script/child"
)

// Main runs a script and ends the process, if a bridge started the process for that. Otherwise, Main does nothing.
func Main() {
	if len(os.Args) == 2 && os.Args[1] == script.Argument {
		os.Exit(child.Main())
	}
}

// Program returns the running program; empty if it is unknown.
func Program() string {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe" // also after an update has replaced the file
	}
	name, err := os.Executable()
	if err != nil {
		return ""
	}
	return name
}

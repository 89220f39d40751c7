// Command mcp-bridge is cmd/bridge in a folder with the name of the program, which "go install" takes from there.
package main

import "github.com/mcp-bridge/bridge/cmd/internal/cli"

func main() { cli.Main() }

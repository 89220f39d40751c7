// Command mcp-bridge is cmd/bridge in a folder with the name of the program, because "go install" names the program
// after the folder.
package main

import "github.com/mcp-bridge/bridge/cmd/internal/cli"

func main() { cli.Main() }

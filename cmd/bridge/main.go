// Command bridge is the same program as mcp-bridge, with another name: see cmd/mcp-bridge.
package main

import "github.com/mcp-bridge/bridge/cmd/internal/cli"

func main() { cli.Main() }

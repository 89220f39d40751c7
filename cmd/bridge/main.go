// Command bridge is mcp-bridge, under the name of its folder: see cmd/mcp-bridge.
package main

import "github.com/mcp-bridge/bridge/cmd/internal/cli"

func main() { cli.Main() }

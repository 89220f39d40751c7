// Command bridge connects any MCP client to any MCP server, over stdio, HTTP+SSE and Streamable HTTP, and turns HTTP
// APIs into MCP servers.
package main

import "github.com/mcp-bridge/bridge/cmd/internal/cli"

func main() { cli.Main() }

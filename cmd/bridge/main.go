// Command bridge lets any MCP client talk to any MCP server, over stdio, HTTP+SSE and
// Streamable HTTP, and makes MCP servers of HTTP APIs.
package main

import "github.com/mcp-bridge/bridge/cmd/internal/cli"

func main() { cli.Main() }

// Package rest makes an HTTP API an MCP server. The tools come from its OpenAPI document, from the
// configuration, and from a catalogue that publishes tools while the bridge runs.
//
// The server runs in this process. It speaks revision 2025-11-25, answers the handshake itself, and
// asks its clients nothing. An [Adapter] is one such server, with the connections, limits, caches and
// circuits of the API. The connections that [Adapter.Open] returns share them.
//
// Package openapi turns documents into tools. Package toolset changes and adds tools by the
// configuration. Package wire turns calls into requests. This package joins these three. It also has
// the configuration (config), the list for clients (list, search), resources (resource), the
// catalogue's tools (published), and the renewal after changes (source, fetch, renew).
package rest

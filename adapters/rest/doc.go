// Package rest makes an HTTP API an MCP server. The tools come from its OpenAPI document, from the
// configuration, and from a catalogue that publishes tools while the bridge runs.
//
// The server runs in this process. It speaks revision 2025-11-25, answers the handshake itself, and
// asks its clients nothing. An [Adapter] is one such server: it holds the connections, limits,
// caches and circuits of the API once. A result of [Adapter.Open] only makes calls.
//
// Package openapi turns documents into tools. Package toolset changes and adds tools by the
// configuration. Package wire turns calls into requests. This package joins them. It has the
// configuration (config), the list for clients (list, search) and resources (resource). It has the
// catalogue's tools (published), and the renewal after changes (source, fetch, renew).
package rest

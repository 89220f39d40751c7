// Package rest makes an HTTP API an MCP server, with tools from its OpenAPI document, from the
// configuration, and from a catalogue that publishes tools while the bridge runs.
//
// The server runs in this process. It speaks revision 2025-11-25, answers the handshake itself, and
// asks its clients nothing. An [Adapter] is one such server: it holds the connections, limits,
// caches and circuits of the API once. A result of [Adapter.Open] only makes calls.
//
// Package openapi turns documents into tools, package toolset changes and adds tools by the
// configuration, and package wire turns calls into requests. This package joins them: the
// configuration (config), the list that clients see (list, search), resources (resource), the
// catalogue's tools (published), and the renewal after changes (source, fetch, renew).
package rest

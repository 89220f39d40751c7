// Package rest makes an HTTP API an MCP server: of its OpenAPI document, of
// tools that the configuration describes, of a catalogue in which tools are
// published while the bridge runs, or of several of these.
//
// The server lives in the process. It speaks 2025-11-25, answers the handshake
// from memory, and asks its clients nothing. An [Adapter] is one such server:
// what it has of the API (connections, limits, caches, the state of hosts) is
// there once, and what [Adapter.Open] returns is only a place to make calls
// from.
//
// Package openapi turns documents into tools, package toolset changes them and adds
// to them as the configuration says, package wire turns calls into requests; this
// one joins them: the configuration (config), the list that clients see (list,
// search), resources (resource), what a catalogue adds (published), and the renewal
// when something has changed (source, fetch, renew).
package rest

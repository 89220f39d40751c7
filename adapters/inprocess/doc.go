// Package inprocess connects MCP servers written in Go with the official SDK to a bridge in the
// same process. Tools that are registered once are served over every transport of the bridge.
//
// Each connection is a session of the SDK, with a queue in between. Messages never become text on a
// wire. The goroutine that sends a message of the server also delivers it. The bytes of a result
// are those of the SDK.
//
// Handlers run in the bridge's own process, so two things differ from a child process. If a handler
// panics, only its caller gets an error. But a panic in a goroutine of a handler ends the process,
// as in any Go program. A handler that ignores its context cannot be stopped: closing its
// connection waits for the handler, but not for ever.
package inprocess

// Package inprocess connects MCP servers written in Go with the official SDK to a bridge in the
// same process. The bridge serves their tools over every transport.
//
// Each connection is a session of the SDK, which reads from a queue. There is no wire. The goroutine
// that sends a message of the server also delivers it. The bytes of a result are those of the SDK.
//
// Handlers run in the bridge's own process, so two things differ from a child process. A panic of a
// handler is an error for its caller only, but a panic in a goroutine that a handler started ends the
// process, as in any Go program. A handler that ignores its context cannot be stopped: closing its
// connection waits for the handler, but not longer than Options.Stop.
package inprocess

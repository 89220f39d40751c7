// Package inprocess joins MCP servers written in Go with the official SDK to a
// bridge in the same process: tools that are registered once are served over
// every transport that the bridge has.
//
// Each connection is a session of the SDK's, with a queue in between. Messages
// never become text on a wire: what the server says is handed on by the
// goroutine that says it, and a result's bytes are those that the SDK made.
//
// Handlers run in the bridge's own process, so that two things differ from a
// child process. A handler that panics costs its caller an error and nobody
// else anything; a panic in a goroutine that a handler has started ends the
// process, as in any Go program. And a handler that does not heed its context
// cannot be stopped: closing its connection waits for it, but not for ever.
package inprocess

// Package stdio speaks MCP over the standard streams of a process: one JSON message on each line
// (all revisions, basic/transports, stdio).
//
// The upstream half runs a server as a child process. No process outlives its connection: process.go
// describes how a child is stopped with all processes that it started, even if the bridge itself is
// killed. A child speaks one era of the protocol, which upstream_era.go detects.
//
// The downstream half, Serve, is the bridge as such a child. It serves the client that started the
// process, on standard input and output. A session ends with the process, and the client ends both
// when it closes the input. Requests of 2026-07-28 and later belong to no session, even if the client
// has one.
//
// The package is tested on Linux. For macOS and Windows, the code is compiled and vetted, but not
// run.
package stdio

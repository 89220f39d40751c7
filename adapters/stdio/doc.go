// Package stdio speaks MCP over the standard streams of a process: one JSON
// message on each line (all revisions, basic/transports, stdio).
//
// The upstream half runs a server as a child process. Nothing of a child
// outlives its connection: see process.go for how it is ended, together with
// all that it started, also when the bridge itself is killed. A child speaks
// one era of the protocol; which one is found out as upstream_era.go says.
//
// The downstream half, Serve, is the bridge as such a child: it serves the one
// client that has started it, on its own standard input and output. A session
// is the life of the process; the client ends it by closing the input. Requests
// of 2026-07-28 and later belong to no session, and may come beside one.
//
// Linux is where this is tested. For macOS and Windows the code is compiled
// and vetted, but not run.
package stdio

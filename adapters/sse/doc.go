// Package sse speaks the HTTP+SSE transport of revision 2024-11-05: a GET
// opens a stream whose first event names the URL to which the client POSTs its
// messages; everything that the server says comes on that stream.
//
// [Downstream] serves clients, [Upstream] reaches servers. Clients and servers
// of any legacy revision may use it; only the transport is old. A session lives
// exactly as long as its stream: there is no resumption, so that the
// loss of a server's stream loses every call under way, and a new stream is a
// new session.
//
// A server's endpoint must be on the origin of its stream. Servers that
// answer a call in the body of its POST are understood too.
package sse

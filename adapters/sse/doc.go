// Package sse speaks the HTTP+SSE transport of revision 2024-11-05. A GET opens a stream whose
// first event names the URL to which the client POSTs its messages. All messages of the server come
// on that stream.
//
// [Downstream] serves clients, and [Upstream] reaches servers. Clients and servers of any legacy
// revision may use this transport. A session ends with its stream, and cannot be resumed. If
// the stream of a server breaks, every call in flight is lost, and a new stream is a new session.
//
// The URL for POSTs must have the origin of the stream. Some servers answer a call in the
// response to its POST, which Upstream accepts.
package sse

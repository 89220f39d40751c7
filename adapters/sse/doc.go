// Package sse speaks the HTTP+SSE transport of revision 2024-11-05. A GET opens a stream whose
// first event names the URL to which the client POSTs its messages. All messages of the server come
// on that stream.
//
// [Downstream] serves clients, [Upstream] reaches servers. Clients and servers of any legacy
// revision may use it; only the transport is old. A session lives exactly as long as its stream:
// there is no resumption. The loss of a server's stream loses every call in flight, and a
// new stream is a new session.
//
// A server's endpoint must be on the origin of its stream. A server may also answer a call
// in the body of its POST.
package sse

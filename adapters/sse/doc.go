// Package sse speaks the HTTP+SSE transport of revision 2024-11-05: a GET
// opens a stream whose first event names the URL to which the client POSTs its
// messages; everything that the server says comes on that stream.
//
// Clients of any legacy revision may use it; only the transport is old. A
// session lives exactly as long as its stream: there is no resumption.
package sse

// Package streamable speaks the Streamable HTTP transport (2025-03-26 and later, basic/transports):
// one URL, to which clients POST their messages. The response to a POST is JSON, or a stream of
// events that ends with the answer. Clients with a session may also GET, and DELETE the session.
//
// # Sessions
//
// Up to 2025-11-25 a client begins with initialize and is given a session id, which all its later
// requests name. The id alone proves nothing: each request shows its principal anew, and for other
// principals the session does not exist. A session ends by DELETE, after its idle time, or with its
// server. Requests that name it then get 404, which means that the client must initialize again.
// Downstream (downstream.go) holds the sessions, each as a peer (peer.go) around a session of the
// gateway.
//
// Revisions from 2026-07-28 on have no sessions. A request names its revision and the capabilities
// of its client in its body, and again in its headers. The two must be equal, since a proxy may
// have checked the headers only (modern.go). Clients of both eras use the same URL, and each
// message shows its era.
//
// # Streams
//
// The response to a POST is gathered in a stream (stream.go), and the HTTP handler only reads it. A
// stream begins as room for one answer. A call gets a JSON response if its answer comes at once,
// with no other message before. The first progress, question or second of waiting gives the stream
// a log, and the response becomes a stream of events. A GET has a stream too, the standalone one,
// for messages that belong to no call. Such streams are many and mostly silent, so they leave the
// HTTP server if they can (httpio.Detach).
//
// A call without a session (modern_call.go) lasts as long as its POST: when its client disconnects,
// it is cancelled. Subscriptions are such calls.
//
// # Routing
//
// A message of a server goes out on the stream of the call that it belongs to, and on no other. A
// message that belongs to no call goes to the newest stream of a GET. Without such a stream it
// waits as long as the gateway allows. A client's answer comes on a POST of its own, and may answer
// a question from any stream. A batch, which only 2025-03-26 has, is one stream with several
// answers.
//
// # Resumption
//
// Every event of a log has an id, which names the stream and the position in it. A client whose
// connection breaks sends a GET with Last-Event-ID, and another handler continues behind that
// event. No stream repeats the events of another (2025-11-25, Resumability and Redelivery). A
// stream that was read to its end is kept for a while, since its reader may not have received it.
// Time, number and bytes are bounded; the oldest streams are dropped first. Streams that ended as
// JSON have no ids and cannot be resumed.
//
// # Servers
//
// The upstream half reaches servers over the same transport. A connection to a legacy one is a wire
// (upstream_wire.go):
//
//	Conn  -- calls -->  legacyCall   an exchange each; if its stream breaks, GET behind its last event
//	      -- rest  -->  queue        POSTs one after the other, in order
//	      <- events --  standalone   GET, opened again for as long as the connection lives
//
// An exchange (upstream_exchange.go) is one POST and its response. It is made once, unless no byte
// of it can have reached the server. The bridge never repeats a call that the server may have acted
// on. A server that has lost the session answers 404, or with common wordings in its place
// (upstream_refusal.go). Then the connection ends; calls in flight may still get their answers.
//
// To a modern server there is no connection: each call is an exchange, and there is nothing else
// (upstream_modern.go). Streams that break are not resumed. The answers to initialize and
// server/discover show the era of a server (upstream_era.go).
package streamable

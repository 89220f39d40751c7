// Package streamable speaks the Streamable HTTP transport (2025-03-26 and later,
// basic/transports): one URL, to which clients POST their messages. A response to a
// POST is JSON, or a stream of events that ends with the answer. Clients with a
// session may also GET, and DELETE the session.
//
// # Sessions
//
// Up to 2025-11-25 a client begins with initialize and is given a session id, which
// all its later requests name. The id alone proves nothing: each request shows anew
// whose it is, and to anybody else the session does not exist. A session ends by
// DELETE, when it is not used for too long, or with its server; then requests that
// name it get 404, which tells a client to begin anew. Downstream (downstream.go) has
// the sessions, each as a peer (peer.go) around a session of the gateway's.
//
// From 2026-07-28 on there are no sessions. A request says of itself, in its body and
// again in its headers, which revision it is of and what its client can do; the two
// have to say the same, since somebody on the way may have looked at the headers only
// (modern.go). Both kinds of clients use the same URL, and each message tells which
// it is of.
//
// # Streams
//
// What the bridge has to say in return for a POST is gathered in a stream (stream.go),
// and the HTTP handler only reads it. It begins as nothing but a place for the answer:
// a call that is answered at once, and about which there is nothing else to say, gets
// a JSON response. The first progress, question or second of waiting makes a log of
// it, and the response becomes a stream of events. A GET has a stream too, the
// standalone one, for what belongs to no call; such streams are many and mostly
// silent, so they leave the HTTP server where they can (httpio.Detach).
//
// A call without a session (modern_call.go) lasts as long as its POST: when its client
// goes, it is cancelled. Subscriptions are such calls.
//
// # Routing
//
// A message of a server goes out on the stream of the call that it is about, and on
// no other. What is about no call goes to the newest stream of a GET, or waits for one
// as long as the gateway says. An answer of the client's, on a POST of its own, is
// about a question that was put on any of them. A batch, which only 2025-03-26 knows,
// is one stream with several answers.
//
// # Resumption
//
// Every event of a log has an id, which names the stream and the place in it. A client
// whose connection breaks comes back by a GET with Last-Event-ID, and another handler
// goes on behind that event; what one stream has, no other repeats (2025-11-25,
// Resumability and Redelivery). What was read to the end is kept for a
// while, since its reader may not have got it; within bounds of time, number and
// bytes, and beyond them the oldest goes first. Streams that ended as JSON have no
// ids, and nothing to come back for.
//
// # Servers
//
// The upstream half reaches servers over the same transport. A connection to a legacy
// one is a wire (upstream_wire.go):
//
//	Conn  -- calls -->  legacyCall   an exchange each; if its stream breaks, GET behind its last event
//	      -- rest  -->  queue        POSTs one after the other, in order
//	      <- events --  standalone   GET, opened again for as long as the connection lives
//
// An exchange (upstream_exchange.go) is one POST and its response. It is made once,
// unless nothing of it can have reached the server: a call that may have been acted on
// is not for the bridge to repeat. When the server has forgotten the session, which it
// says with 404 or in words that are common in its place (upstream_refusal.go), the
// connection ends; calls under way may still get their answers.
//
// A connection to a modern server is none to the server: each call is an exchange, and
// there is nothing else (upstream_modern.go). Streams that break are not resumed. Which
// of the two a server is, its answers to initialize and server/discover tell
// (upstream_era.go).
package streamable

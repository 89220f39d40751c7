// Package streamable speaks the Streamable HTTP transport (2025-03-26 and
// later, basic/transports): one URL for POST, and for clients with a session
// GET and DELETE.
//
// The downstream half serves clients. A POST that is answered quickly, and
// about which the server says nothing else, gets a JSON response; otherwise it
// becomes a stream of events. See stream.go for how streams outlive their
// connections.
//
// Clients of 2026-07-28 and later have no session: see modern.go for how they
// are told from the others, and for what their requests have to be like, and
// modern_visit.go for a call that lasts as long as its POST.
//
// The upstream half reaches servers. Each call is a POST of its own, answered
// with JSON or with events:
//
//	Conn  -- calls -->  exchange   POST; if its stream breaks, GET behind its last event
//	      -- rest  -->  courier    POSTs one after the other, in order
//	      <- events --  standing   GET, opened again for as long as the connection lives
//
// A call is sent once, unless nothing of it can have reached the server. When
// the server has forgotten the session, which it says with 404 or in words that
// are common in its place, the connection ends; calls under way may still get
// their answers.
//
// To a modern server (2026-07-28) each call is a POST too, and there is nothing
// else (upstream_modern.go). Its answers to initialize and server/discover tell
// which of the two a server is (upstream_era.go).
package streamable

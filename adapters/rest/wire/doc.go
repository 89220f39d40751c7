// Package wire turns tool calls into HTTP requests and HTTP answers into
// results of tool calls.
//
// A call goes through these steps, a file or two for each: the arguments are
// checked (bridge/validate), put where they belong (request, style, path, body,
// form, file), given a server and credentials (server, auth, oauth), sent
// within limits (send, limit, cache), read within limits (read, stream) and
// made into a result (answer, fault, cut).
//
// What an argument contains cannot leave its place: a value in a path stays one
// segment, a value in a query or a form stays one value, a value in a header
// stays in its line. What cannot be said unmistakably is refused. Credentials
// go to the hosts that they are for, and appear in no text.
package wire

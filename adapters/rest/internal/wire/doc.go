// Package wire turns tool calls into HTTP requests and HTTP answers into
// results of tool calls.
//
// A call goes through these steps, a file or two for each: the arguments are
// checked (internal/validate), put where they belong (request, style, path, body,
// form, file), given a server and credentials (server, auth, oauth), sent
// within limits (send, limit, cache), read within limits (read, stream) and
// made into a result (answer, fault, cut).
//
// The gateway guards servers, and this package guards hosts once more, with the same
// circuit and settings. The gateway cannot do it: a request that fails is a result of
// its tool and no error of the call, so it looks well from there; the tools of one
// document may be at several hosts, of which one fails; and a call may be several
// requests, of which each is to be sent again, held back or counted by itself.
//
// What an argument contains cannot leave its place: a value in a path stays one
// segment, a value in a query or a form stays one value, a value in a header
// stays in its line. What cannot be said unmistakably is refused. Credentials
// go to the hosts that they are for, and appear in no text.
package wire

// Package wire turns tool calls into HTTP requests, and HTTP answers into results.
//
// A call takes these steps, each in a file or two: internal/validate checks the arguments, package
// param puts them in their places, server and auth and oauth add the server and the credentials,
// send and limit and cache send the request, read and stream read the answer within limits, and
// answer, fault and cut make the result.
//
// The gateway guards servers, and this package guards hosts, with the same circuit and settings.
// The gateway cannot do this: it sees a failed request as a normal result; the tools of one
// document may use several hosts, of which one fails; and a call may make several requests, each of
// which is retried, held back and counted by itself.
//
// An argument cannot leave its place: a value in a path stays one segment, a value in a query or a
// form stays one value, a value in a header stays in its line. Ambiguous values are refused.
// Credentials go only to the hosts that they are for, and appear in no text.
package wire

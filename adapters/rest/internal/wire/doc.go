// Package wire turns tool calls into HTTP requests, and HTTP answers into results.
//
// A call takes these steps, each in a file or two. internal/validate checks the arguments, and
// package param puts them in their places. server, auth and oauth add the server and the
// credentials. send, limit and cache send the request. read and stream read the answer within
// limits. answer, fault and cut make the result.
//
// The gateway guards servers, and this package guards hosts, with the same circuit and settings.
// The gateway cannot guard hosts: a failed request reaches the gateway as a normal result, and the
// tools of one document may use several hosts, of which one fails. A call may make several requests,
// and each of them is retried, held back and counted by itself.
//
// An argument cannot leave its place. A value in a path stays one segment. A value in a query or a
// form stays one value. A value in a header stays in its line. Ambiguous values are refused.
// Credentials go only to the hosts that they are for, and no text shows them.
package wire

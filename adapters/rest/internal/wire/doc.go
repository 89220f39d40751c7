// Package wire turns tool calls into HTTP requests, and HTTP answers into results.
//
// In go [Options] and, for each call, a [Call]; out comes a result as JSON. A [Source] makes the calls.
// The package is read in this order, which is that of a call:
//
//   - options: what the operator and the caller say
//   - server, auth, oauth, reach: the server of an operation, and the credentials that go there
//   - plan, sign: a request before it is sent
//   - breaker, cache, budget: when it may be sent, and when it need not be
//   - source: what calls share; mask: what no text shows
//   - read: the answer within limits, and streams
//   - result, headers, shape, answer, settings, fault: the result for the model
//   - assemble: internal/validate checks the arguments, and package param puts them in their places
//   - send, call, content: one attempt, one call, one resource
//   - open: a new source
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

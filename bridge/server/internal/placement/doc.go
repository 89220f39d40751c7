// Package placement decides at which instance of several a connection to a server lives,
// and carries its calls there.
//
// # Homes
//
// A shared connection lives at one instance, its home: that of `share: principal` and
// `share: all`, and those of clients without sessions to a child or to a server with
// sessions. Otherwise a server with a memory would show another face with each request
// that reaches another instance.
//
// The first instance that needs such a connection claims it in the store, and is its
// home until it stops, ends, or has not used it for long. The others reach it there.
// When the home ends, the lane of each other instance has lost a connection and opens
// another one, at the next home. Requests of clients without sessions go to the home one
// by one.
//
// # Workers
//
// The child processes of servers with `place: workers` run at workers. An instance that
// needs a connection offers its opening in a queue; a worker with a free place takes the
// offer, and gives a ticket for it. With that the front opens a tunnel to the worker,
// whose only server is a child process. Nothing that the two say goes through the store.
//
// When the worker ends, the front has lost a connection, and opens another one. When the
// front ends, the worker keeps the child for a while: the instance that takes the session
// over goes on with it.
//
// # Tunnels
//
// A connection that lives elsewhere is used through an inner MCP session to that
// instance, which is spoken as to any other server: the owner of the connection opens
// again what it loses.
package placement

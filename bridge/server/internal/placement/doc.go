// Package placement decides which instance has the connection to a server, and carries
// calls to it.
//
// # Owners
//
// A shared connection has one owner among the instances. Shared are the connections of
// `share: principal` and `share: all`, and those of stateless clients to a child process or
// to a server with sessions. With several connections, a server with memory would answer
// differently at each instance.
//
// The first instance that needs such a connection claims it in the store. It is the owner
// until it stops, or has not used the connection for long. The other instances use it
// through tunnels. When the owner ends, each of their lanes loses a connection, and opens
// one at the next owner. Requests of stateless clients go to the owner one by one.
//
// # Workers
//
// The child processes of servers with `place: workers` run at workers. An instance that
// needs one, the front, puts a request into a queue. A worker with a free slot takes the
// request and sends the front a grant, by which the front opens a tunnel to the slot.
// Messages never go through the store.
//
// When the worker ends, the front loses a connection and opens another one. When the front
// ends, the worker keeps the process for a while. The instance that takes over the session
// resumes it.
//
// # Tunnels
//
// A tunnel is an MCP session between two instances, which a lane uses as any other
// connection. An instance that stops asks the others to leave it, and waits until they have
// closed their tunnels.
package placement

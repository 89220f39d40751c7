// Package limits bounds the calls in flight and their rates. [Queue] and [Rates] are for one server, [Quota] for the
// whole bridge, [Shares] for slots that principals share, and [Bytes] for memory.
//
// If no slot is free, a call waits in a queue, which gives slots to the principals in turn. A call that waits for its
// client, or listens, gives its slot back. A refusal names the limit, the key of the limit in the configuration, and
// when to try again.
//
// The package starts no goroutine, and does not bound connections.
package limits

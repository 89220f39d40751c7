// Package limits bounds the calls in flight and their rates. [Queue] and [Rates] are for a server,
// [Shares] for slots that principals share, [Quota] for the whole bridge, and [Bytes] for memory.
//
// A call without a free slot waits in a queue, which serves the callers in turn. A call that waits
// for its client, or listens, gives its slot back. A refusal names the limit, its key in the
// configuration, and when to try again.
//
// The package starts no goroutine, and does not bound connections.
package limits

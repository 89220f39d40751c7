// Package limits bounds the calls in flight and their rates: at a server ([Queue], [Rates]), of
// slots that principals share ([Shares]), in the whole bridge ([Quota]), and in bytes ([Bytes]).
//
// A call without a free slot waits in a queue, which serves the callers in turn. A call that waits
// for its client, or listens, gives its slot back. A refusal names the limit, its key in the
// configuration, and when to try again.
//
// The package starts no goroutine, and does not bound connections.
package limits

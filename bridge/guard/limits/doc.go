// Package limits bounds what callers have under way and how often they call: at
// a server ([Queue], [Rates]), of places that several share ([Shares]), in the
// whole bridge ([Quota]), and in bytes ([Bytes]).
//
// A call that finds no place waits in line, turn by turn among the callers; a
// call that waits for its client, or listens, gives its place back. What is
// refused says which limit was reached, its key in the configuration, and when to
// try again.
//
// It starts no goroutine, and does not bound connections.
package limits

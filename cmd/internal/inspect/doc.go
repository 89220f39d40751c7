// Package inspect implements the commands tools, prompts, resources and call, which use a
// server as its client.
//
// The commands reach a server through a bridge in the same process, as when it is served.
// They show results without loss: no field is dropped and no digit changed. Text of a
// server reaches a terminal with its control characters escaped, and a server cannot
// choose file names. Each command stops what it started. Its error has an exit code
// (package exit).
package inspect

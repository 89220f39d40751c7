// Package inspect implements the commands tools, prompts, resources and call. Each command is a client of a server.
//
// The commands reach a server through a bridge in the same process, as if the server were served. They show results
// without loss: no field is dropped and no digit changes. Text of a server reaches a terminal only with control
// characters escaped, and a server cannot choose file names. Each command stops everything that it started. Its error
// has an exit code (package exit).
package inspect

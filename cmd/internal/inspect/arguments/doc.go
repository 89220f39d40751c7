// Package arguments makes JSON of what a person writes for a tool, a prompt or
// a form: key=value on a command line, or the answer to one field.
//
// It goes by the JSON Schema of a server, of which it reads only what that
// takes: types, values to choose from, what is required. What it makes is
// valid JSON, and numbers keep their digits. Schemas are written by strangers:
// whatever one says, the work is bounded. It does not validate as a whole, as
// package validate does; that is left to the server.
package arguments

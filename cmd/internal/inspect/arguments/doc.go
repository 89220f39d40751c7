// Package arguments converts a person's input for a tool, a prompt or a form to JSON. The input is key=value on a
// command line, or the answer for one field.
//
// The package reads only the types, the enums and the required arguments in a server's JSON Schema. The result is valid
// JSON, and numbers keep their digits. Strangers write schemas, so the work for each schema is bounded. The server
// validates the arguments completely.
package arguments

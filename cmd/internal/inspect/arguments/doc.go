// Package arguments converts a person's input for a tool, a prompt or a form to JSON.
// Input is key=value on a command line, or the answer to one field.
//
// It reads only the types, the enums and the required arguments of a server's JSON
// Schema. The result is valid JSON, and numbers keep their digits. Strangers write
// schemas, so the work for each is limited. The server validates the arguments as a
// whole.
package arguments

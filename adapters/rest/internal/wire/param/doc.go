// Package param makes requests of the arguments of calls: [Assemble] puts each where
// the document has it, in the path, the query, a header, a cookie or the body, and
// writes it as the document says, in every style of OpenAPI and Swagger, as JSON, as
// a form, in parts, or as a file.
//
// What a server reads there is the value that the client gave, and nothing else: no
// argument can become another parameter, another segment of the path, another
// header or a credential. What cannot be written so is a [Refusal], which clients
// may read.
//
// Nothing is checked against a schema here, nothing is sent, and nobody knows yet
// where the API is or who it is called for.
package param

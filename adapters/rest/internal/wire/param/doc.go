// Package param makes requests of the arguments of calls. [Assemble] puts each argument in its
// place: the path, the query, a header, a cookie or the body. It supports every style of OpenAPI and
// Swagger, and bodies in JSON, forms, parts and files.
//
// The server reads exactly the client's value in that place. No argument can become another
// parameter, another segment of the path, another header or a credential. A value that cannot be
// written safely is a [Refusal], which clients may see.
//
// This package checks no schema and does no I/O. It knows neither the server nor the caller.
package param

// Package openapi turns the description of an HTTP API into tools. It reads Swagger 2.0 and OpenAPI
// 3.0 to 3.2, in JSON or YAML, in one text or several.
//
// [Load] reads a document into a small [Document], which is the same for all versions. [Tools]
// makes a [Tool] of each operation. A tool has a name, a description, JSON Schemas of its input and
// output, and the place of each argument in the request. This package calls no API.
//
// The package is lenient. A fault costs at most its own operation, and causes a [Warning] with file
// and line. The package repairs most faults. It keeps the document's order, so that the same document
// always gives the same bytes. Schemas are self-contained: definitions are in $defs, and references
// resolve, even in cycles. Schemas compile as JSON Schema 2020-12, and meet the rules of the
// strictest model providers: names of at most 64 plain characters, arrays with an item schema, and
// enums without repetition. A tool that is too long for a list loses its deepest parts and optional
// properties.
//
// Package tree reads the texts; this package resolves references.
package openapi

// Package openapi turns the description of an HTTP API into tools. It reads Swagger 2.0 and OpenAPI
// 3.0 to 3.2, in JSON or YAML, in one text or several.
//
// [Load] reads a document into a small [Document], which is the same for all versions. [Tools]
// makes a [Tool] of each operation: its name, its description, the JSON Schemas of its input and
// output, and the place of each argument in the request. This package calls nothing.
//
// It is lenient: a fault costs at most the operation that it is in, and causes a [Warning] with
// file and line; most faults are repaired. It keeps the order throughout, so that the same document
// always gives the same bytes. Schemas are self-contained: definitions are in $defs and references
// resolve, also in cycles. They compile as JSON Schema 2020-12, and meet the rules of the strictest
// model providers: names of at most 64 plain characters, arrays with an item schema, enums without
// repetition. A tool that is too long for a list is shortened where it is deepest and least needed;
// [Tool.Full] has all of it.
//
// Package tree reads the texts; this package resolves references.
package openapi

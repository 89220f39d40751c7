// Package openapi turns the description of an HTTP API into tools: Swagger 2.0
// and OpenAPI 3.0 to 3.2, in JSON or YAML, in one text or several.
//
// [Load] reads a document into the small [Document], which is the same for all
// versions, and [Tools] makes a [Tool] of each operation: its name, what it
// says about itself, the JSON Schema of its input and output, and the way from
// every argument back to its place in the request. Nothing is called here.
//
// Documents are taken as they are. Whatever is wrong costs at most the
// operation that it is in, and a [Warning] with file and line; most things are
// put right. Order is kept throughout, so that the same document always gives
// the same bytes. Schemas stand on their own (definitions in $defs, references
// that lead somewhere, cycles included), compile as JSON Schema 2020-12, and
// keep to what the strictest providers of models take: names of at most 64
// plain characters, arrays that say what they hold, enums without repetition.
// A tool that would be too long for a list is shortened where it is deepest
// and least needed; [Tool.Full] has all of it.
//
// Package tree reads the texts; what a reference leads to is found out here.
package openapi

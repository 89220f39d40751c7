// Package tree reads JSON and YAML into trees that know where everything stands:
// each [Node] has its line and the number of its file. [Parse] does so for both.
//
// Order is kept, numbers keep their digits, and of several members of one name the
// last counts. What lies too deep, or multiplies itself by aliases and <<, is left
// out, and the reader is told of it: no text takes more time or memory than its
// length allows. Trees of large documents are small, and lie in few pieces of
// memory.
//
// References mean nothing here: [Member.LeadsOut] only says that one leads out of
// the text.
//
// Trees are our own and not those of a library, because the libraries for
// OpenAPI refuse documents that are in use, take many times as long, and lose
// order and lines. YAML is read by go.yaml.in/yaml/v3: v4, which reads the
// configuration, takes half as long again for a document of 3 MB.
package tree

// Package tree reads JSON and YAML into trees with positions: each [Node] has its line and the
// number of its file. [Parse] reads both.
//
// Trees keep the order and the digits of numbers. If several members have one name, the last one
// counts. Parts that are nested too deep, or multiplied by aliases and <<, are omitted with a
// warning. So no text takes more time or memory than its length allows. Trees of large documents
// are compact.
//
// This package does not resolve references: [Member.LeadsOut] only reports that a reference points
// to another text.
//
// The trees are our own. Libraries for OpenAPI refuse documents that are in use, take many times as
// long, and lose order and lines.
package tree

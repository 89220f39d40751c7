// Package tree reads JSON and YAML into trees with positions: each [Node] has its line and the
// number of its file. [Parse] reads both.
//
// Trees keep the order of members and the digits of numbers. If several members have the same name,
// the last one counts. Parts that are nested too deep, or that aliases and << multiply, are omitted
// with a warning, so that time and memory stay proportional to the length of a text.
//
// This package does not resolve references: [Member.LeadsOut] only reports that a reference points
// to another text.
//
// The package uses no library for OpenAPI, since these refuse documents that are in use, take many
// times as long, and lose the order and the lines.
package tree

// Package toolset makes tools of operations by the operator's configuration. An [Entry] changes a
// tool of the document (Override): other names, values that clients do not see, headers, a query
// and a body. Or it is a tool of its own (Build), with a template of its request. [Common] holds
// the entries for the parameters of all operations.
//
// Clients neither see nor set the values that an entry sets. Arguments stay in the places that a template gives them.
// Mistakes are a [Fault] with the key and the line of the configuration, found before any call. The package recognizes
// probable secrets, so that they are never shown.
//
// It reads, lists and sends nothing: a [Tool] says how its arguments become those of package wire,
// and with which settings.
package toolset

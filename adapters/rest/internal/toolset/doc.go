// Package toolset makes tools of operations by the operator's configuration. An [Entry] changes a
// tool of the document (Override): other names, values that clients do not see, headers, a query
// and a body. An entry with a template of a request is a tool of its own (Build). [Common] holds
// the entries for the parameters of all operations.
//
// Clients neither see nor set the values that an entry sets, and an argument goes only to the places
// that a template gives it. A mistake is a [Fault] with the key and the line of the configuration,
// found before any call. The package recognizes probable secrets, so that they are never shown.
//
// The package is read in this order: tool (entries, arguments, tools), fault, template, places (where
// templates go), arguments (one list of changes for each argument), secrets, settings, body and override
// (an entry over a tool of the document), request (a tool of its own), shared and rules (entries for many
// operations), pick.
//
// The package does no I/O: a [Tool] turns the arguments of a call into those of package wire, and
// has the settings of the call.
package toolset

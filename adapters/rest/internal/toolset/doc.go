// Package toolset makes tools of operations as the operator wants them. An [Entry] of
// the configuration changes a tool of the document (Override): other names, values
// that clients do not see, headers, a query and a body laid over its requests. Or it
// is a tool of its own (Build), with a template of its request. What holds for the
// parameters of all operations is [Common].
//
// What an entry sets, clients neither see nor can set. Arguments stay in the place
// that a template gives them. What cannot work is a [Fault] with the key and the line
// of the configuration, and it is found before any call is made. Values that are
// probably secrets are known, so that nobody is shown them.
//
// Nothing is read, listed or sent here: a [Tool] says how its arguments become those
// of package wire, and with which settings.
package toolset

// Package rest makes an HTTP API an MCP server. The tools come from its OpenAPI document, from the
// configuration, and from a catalogue that publishes tools while the bridge runs.
//
// In goes a [Config] with [Options]; out comes an [Adapter], an MCP server in this process, with the
// connections, limits, caches and circuits of the API. It speaks revision 2025-11-25, answers the
// handshake itself, and asks its clients nothing. The connections that [Adapter.Open] returns share it.
//
// An Adapter has three parts, each a package. What one part makes, the next one gets:
//
//	document   reads the texts, keeps the last good ones, and follows their changes
//	    │ a Reading: the parsed document, and the text of the catalogue
//	tools      makes the tools and resources, their lists, faults and warnings
//	    │ a Set, and the options with which its source calls the API
//	calls      answers the requests of clients; puts a new edition in the place of the old one
//
// Below them stand the libraries that know nothing of the parts:
//
//	openapi    documents, and the tools of their operations
//	toolset    one tool, changed or added by an entry of the configuration
//	catalog    the entries of a catalogue
//	wire       one call: request, credentials, limits, answer, result; signed by package sign
//
// The package is read in this order: names (types of the settings that belong to the packages below),
// published and config (the settings, and what each part gets of them), inspect (what an API offers,
// without connections), maker (a reading becomes an edition), adapter (the parts put together). The parts,
// and packages toolset and wire, say in which order their own files are read.
package rest

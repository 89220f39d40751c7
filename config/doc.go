// Package config reads the bridge's configuration file: addresses to listen on, limits, and the servers to publish. The
// file is YAML or JSON, or the mcpServers file of a desktop client. docs/configuration.md and the folder beside it are
// its reference.
//
// What goes in is the text of a file and the variables of the environment: [Load], [Parse]. What comes out is a
// [Config], or [Faults] with all faults of the file. A program makes a Config in code instead: it begins with [Default]
// and [DefaultServer], and ends with [Config.Validate]. [Diff] compares two of them, and says when each change takes
// effect.
//
// Reading is strict: one run reports all faults of a file with their lines, such as unknown keys, duplicates, wrong
// types and missing variables. A value may contain variables of the environment (${NAME}, ${NAME:-default}). The
// package replaces them after parsing, so a value cannot add structure. Messages show the text of the file, never the
// value, which may be a secret. The package neither connects to a server nor starts one.
//
// # A setting
//
// A setting is a field of a struct, and the field's tags say what there is to say about it: key, default, bounds,
// words, form, and when a change takes effect. Package setting reads the tags. The decoder, Validate, Diff, the schema
// and the tables of the reference all follow from them. The structs belong to the packages that use the settings, such
// as gateway, breaker and stdio; Config and Server embed or contain them. A rule about several keys is a method of the
// struct that has the keys.
//
// # Files in reading order
//
// Each file uses those before it, and none that come later.
//
// Settings, and their rules:
//
//	names.go, faults.go, digest.go, texts.go      short names, faults, files, forms of texts
//	tls.go, access.go, oauth.go, cluster.go       structs of settings for callers and instances
//	server.go                                     a server
//	forward.go, filter.go, remote.go, rest.go     rules for parts of a server
//	rules_server.go                               rules for a server by itself
//	config.go, memory.go, watched.go              the whole; what memory allows; the files that it names
//	rules_callers.go, rules_among.go, validate.go rules for the whole
//
// Reading a file:
//
//	decoder.go                                    the decoder: package strict, and what it collects
//	files.go, secrets.go, slips.go                files that settings name, secrets, habits from elsewhere
//	inline.go, filter_keys.go                     values whose form in a file is not that of their struct
//	rest_auth.go, rest_tools.go                   the same of HTTP APIs
//	foreign.go, restrict.go, servers.go           files of other programs; the servers
//	desktop.go                                    servers in files of desktop clients
//	schema.go                                     which of these reads what: the strict.Schema
//	warnings.go, load.go                          remarks about the whole; the way in
//
// What changed:
//
//	diff.go                                       the changes, and when each takes effect
package config

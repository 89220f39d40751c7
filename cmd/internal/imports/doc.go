// Package imports converts the file of another program (a desktop client, an editor or another bridge) to a
// configuration of the bridge.
//
// It recognizes a file by its content and not by its name. References to variables replace secrets, unless the caller
// requests inline secrets. If a client's restrictions cannot be converted, the server is omitted. Notes list keys
// without a counterpart. The package starts nothing and connects to nothing.
package imports

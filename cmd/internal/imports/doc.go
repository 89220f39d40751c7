// Package imports converts the file of another program to a configuration of the bridge: of
// a desktop client, an editor or another bridge.
//
// It recognizes a file by its content, not its name. References to variables replace
// secrets, unless the caller requests them inline. It converts restrictions of clients, or
// omits the server. Notes list keys without a counterpart. It starts nothing and connects
// to nothing.
package imports

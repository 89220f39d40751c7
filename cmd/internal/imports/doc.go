// Package imports makes a configuration of the bridge out of the file of another
// program: of a desktop client, an editor or another bridge.
//
// A file is known by its content, not by its name. Secrets do not get into the
// new file unless that is asked for: a reference to a variable stands in their
// place. What restricts clients is taken over, or the server is left out. Notes
// say what had no counterpart. Nothing is started, and nothing is connected to.
package imports

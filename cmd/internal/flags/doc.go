// Package flags has what the flags of several commands have in common: the log,
// the file with the configuration, and a server that no file describes, which
// is a program or at a URL.
//
// It makes values of what a command line says, and refuses what says nothing
// with an error that names the flag; it never repeats the value of one, which
// may be a secret. It opens no connection and starts nothing.
package flags

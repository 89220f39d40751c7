// Package flags defines the flags that several commands share: the log, the configuration
// file, and a server given as a program or a URL.
//
// It refuses a wrong value with an error that names the flag. It never repeats a value,
// which may be a secret. It opens no connection and starts nothing.
package flags

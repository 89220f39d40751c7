// Package flags defines the flags that several commands share: for the log, for the configuration file, and for a
// server given as a program or a URL.
//
// It refuses a wrong value with an error that names the flag but never shows the value, which may be a secret. It opens
// no connections and starts nothing.
package flags

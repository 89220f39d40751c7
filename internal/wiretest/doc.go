// Package wiretest tests the HTTP transports without processes and networks: a
// server in memory that plays tools in plain Go, a listener in memory on which
// time can be faked (testing/synctest), and whole dialogues written down as
// txtar files.
package wiretest

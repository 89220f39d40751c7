// Package wiretest tests the HTTP transports without processes and networks. It has a server in
// memory whose tools are plain Go, a listener in memory that works with fake time
// (testing/synctest), and dialogues that are written as txtar files.
package wiretest

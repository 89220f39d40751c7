// Package wiretest tests the HTTP transports without processes and networks. It has a server in memory whose tools are
// plain Go code, and a listener in memory that works with fake time (testing/synctest). Its dialogues are txtar files.
package wiretest

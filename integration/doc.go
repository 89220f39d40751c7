// Package integration runs the built bridge between real clients and real servers. The clients are the official Go and
// TypeScript clients. The servers are the Go everything server of examples/ and its model from npm. The conformance
// suite runs too.
//
// The matrix of revisions (TestEras) has its own peers, each for exactly one revision. The folder eras/ has the peers
// of the TypeScript SDKs 1.x and 2.x, and the script that all peers execute. The folders eraserver and eraclient have
// the peers of the Go SDK. The results of the whole matrix are in a table in docs/eras.md, which -update writes.
//
// The package has only tests. They build their programs with the go command, and install the npm packages of
// package-lock.json at their first use. A test whose programs are missing is skipped, with a line that names the
// programs. If BRIDGE_TEST_REQUIRE, a comma-separated list of programs or "all", names the programs, the test fails
// instead.
package integration

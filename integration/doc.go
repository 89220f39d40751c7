// Package integration runs the built bridge between real clients and real
// servers. The clients are the official Go and TypeScript clients. The servers
// are the Go everything server of examples/ and its npm model. The conformance
// suite runs too.
//
// The matrix of revisions (TestEras) has peers of its own that speak exactly
// one revision each. The folder eras/ has the peers of the TypeScript SDKs, 1.x
// and 2.x, and the script that all peers play. The folders eraserver and
// eraclient have the peers of the Go SDK. The table in docs/eras.md holds the
// results of the whole matrix, which -update writes.
//
// The package has only tests. They build their programs with the go command,
// and install the npm packages of package-lock.json on first use.
// A test whose programs are missing is skipped with a line that names them.
// With BRIDGE_TEST_REQUIRE, a comma-separated list of programs or "all", the
// test fails instead.
package integration

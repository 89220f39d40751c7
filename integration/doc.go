// Package integration runs the built bridge between real clients and real
// servers: the official Go and TypeScript clients in front, the Go everything
// server of examples/ and its npm model behind, and the conformance suite.
//
// The matrix of revisions (TestEras) has peers of its own that speak exactly
// one revision each: eras/ has those by the TypeScript SDKs, 1.x and 2.x, and
// the script that all play; eraserver and eraclient are those by the Go SDK.
// The table in docs/eras.md is what it found, which -update writes.
//
// It has no code of its own besides its tests. They build what they need with
// the go command and install the npm packages of package-lock.json on first
// use. A test whose programs are missing is skipped with a line that says so;
// BRIDGE_TEST_REQUIRE, a comma-separated list of programs or "all", makes it
// fail instead.
package integration

// Package docs holds what the program prints of its documentation.
package docs

import _ "embed" // for Schema

// Schema is the JSON schema of a configuration file. A test of config writes it.
//
//go:embed bridge.schema.json
var Schema []byte

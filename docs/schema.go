// Package docs holds the parts of the documentation that the program prints.
package docs

import _ "embed" // for Schema

// Schema is the JSON schema of a configuration file. A test of config writes it.
//
//go:embed bridge.schema.json
var Schema []byte

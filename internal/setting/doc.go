// Package setting reads what the tags of a struct say about its fields, which are settings of the operator:
//
//	yaml:"max_children"   the key in a file
//	effect:"live"         when a change takes effect: see config.Effect
//
// A struct that is embedded without a key stands for its fields.
package setting

// Package setting reads what the tags of a struct say about its fields, which are settings of the operator. The tags are:
//
//	yaml:"max_children"     the key in a file; after a comma "off" for a duration that may be off, "some" for a list
//	                        that must not be empty, "set" for a struct in which zero is a fault, unless all of it is zero
//	effect:"live"           when a change takes effect: see config.Effect
//	default:"256"           the value with which Fill replaces zero
//	usually:"as calls"      the default in words, if it depends on something else
//	one_of:"all legacy"     the words that a text may be; without a default, the text may also be empty
//	text:"origin"           the form of a text, or of each text in a list: a name in Texts
//	names:"header"          the form of the names in a table
//	min:"1s" max:"1m"       the bounds of a number
//	shown:"yes"             changes show the text, since it is never a secret; they also show texts with one_of or text
//	why:"…"                 the reason for the rule, for messages
//
// A number without min has to be positive: a count at least 1, a size at least 1KiB, a duration longer than 0. The same
// tags are read for files (package strict), for programs (Faults), for changes (package config), and for the schema and
// the reference in docs. A struct that is embedded without a key stands for its fields.
package setting

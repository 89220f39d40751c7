// Package strict decodes YAML and JSON into structs by their yaml tags. For each value that
// does not fit, it reports the line, the key, the rule and the fix.
//
// One run finds all faults. No value is taken for another kind: a number in quotes is text, 90
// is no duration, and a repeated key is a fault. Messages show no value that came from the
// environment. The work is bounded for any file: see [Parse].
//
// The package is independent of the settings; a [Schema] describes their special rules. It neither
// opens nor writes files.
package strict

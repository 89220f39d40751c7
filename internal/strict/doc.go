// Package strict decodes YAML and JSON into structs by their yaml tags. For each value that does not fit, it reports
// the line, the key, the rule and the fix.
//
// One run finds all faults. No value is converted to another kind: a number in quotes is text, 90 is not a duration,
// and a repeated key is a fault. Messages do not show values from the environment. The work for a file is bounded: see
// [Parse].
//
// The package is independent of the settings. A [Schema] describes their special rules. The package does not open or
// write files.
package strict

// Package strict decodes YAML and JSON into structs, by their yaml tags, and says
// of everything that does not fit what it is, in which line, by which rule, and
// what would be right.
//
// It promises to find all faults in one run, to take nothing for something else
// (a number in quotes is text, 90 is no duration, a key twice is a fault), and
// to show no value that came from the environment. Whatever a file holds, the
// work is bounded: [Parse] says how.
//
// It knows no settings. What is special about some of them, its user says by a
// Schema. It opens no file, and it does not write any.
package strict

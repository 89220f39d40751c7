package strict

import (
	"reflect"

	"go.yaml.in/yaml/v4"
)

// Decoder reads one file. It collects every fault, so that one run shows them all. A field
// whose value has a fault keeps its former value.
type Decoder struct {
	// File and Program are the names of the file and of the program that reads it, for
	// messages.
	File, Program string
	// Foreign marks a file that was made for another program: an unknown key is a warning
	// then, and ${env:NAME} is a reference, too.
	Foreign bool
	// Faults and Warnings are in the order in which they were found.
	Faults, Warnings Faults
	// Secrets maps values from the environment to the references that messages show
	// instead.
	Secrets map[string]string

	// Env looks up variables.
	Env func(string) (string, bool)

	schema Schema
	values []string // values from the environment in the text that Expand read last
}

// Schema has the special rules of the structs that a decoder fills. No error shows a value,
// which may be a secret.
type Schema interface {
	// Special reads a value that has a special form, and stores it at the pointer into.
	// known is false for all other values.
	Special(s *Slot, n *yaml.Node, into any) (ok, known bool)
	// Form returns the expected form of a type whose values are written as text, and
	// parses them; parse is nil for all others.
	Form(t reflect.Type) (expected string, parse func(Text) (any, error))
	// RuleOf returns a check of the value of a key, beyond its type. For a list it checks each item,
	// and for a table each name. The check returns the normal form of the value. RuleOf returns nil
	// when there is no such check.
	RuleOf(in reflect.Type, key string) func(any) (any, error)
	// OtherKeys returns the keys of a struct that are read without a field.
	OtherKeys(in reflect.Type) []string
	// Meant returns the valid key that was probably meant by an unknown one, or nothing.
	Meant(key string, valid []string) string
	// CheckStruct checks a struct after its keys were read: by Decoder.Validate at least.
	CheckStruct(sec *Section, v any)
	// CheckText checks a text as it is written, before references are replaced.
	CheckText(s *Slot, text string) error
	// NoteExpanded gets each text that has values from the environment in it.
	NoteExpanded(s *Slot, whole string, values []string)
}

// New returns a decoder for a file. env looks up variables.
func New(file, program string, env func(string) (string, bool), s Schema) *Decoder {
	return &Decoder{
		File:    file,
		Program: program,
		schema:  s,
		Env:     env,
		Secrets: map[string]string{},
	}
}

// Quiet returns a decoder of the same file for a first look. Its faults are dropped.
func (d *Decoder) Quiet() *Decoder {
	return &Decoder{
		File:    d.File,
		Program: d.Program,
		Env:     d.Env,
		Secrets: map[string]string{},
	}
}

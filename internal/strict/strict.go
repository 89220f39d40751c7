package strict

import (
	"reflect"

	"go.yaml.in/yaml/v4"

	"github.com/mcp-bridge/bridge/internal/setting"
)

// Decoder reads one file. It collects every fault, so that one run shows all faults. A field whose value has a fault
// keeps its previous value.
type Decoder struct {
	// File and Program are the names of the file and of the program that reads the file, for messages.
	File, Program string
	// Foreign means that the file was made for another program. In such a file, an unknown key is only a warning, and
	// ${env:NAME} is also a reference.
	Foreign bool
	// Faults and Warnings are in the order in which they were found.
	Faults, Warnings Faults
	// Secrets maps values from the environment to the references that messages show instead of the values.
	Secrets map[string]string

	Env func(string) (string, bool)
	// Later, unless nil, reports whether a reference stays as it is written, since it is replaced later.
	Later func(reference string) bool

	schema Schema
	values []string // values from the environment in the text that Expand read last
}

// Schema has the special rules for the structs that a decoder fills. Its errors do not show values, which may be
// secrets.
type Schema interface {
	// Special reads a value that has a special form, and stores the value at the pointer into. For all other values,
	// known is false.
	Special(s *Slot, n *yaml.Node, into any) (ok, known bool)
	// Form returns the expected form of a type whose values are written as text, and the function that parses the text.
	// For all other types, parse is nil.
	Form(t reflect.Type) (expected string, parse func(Text) (any, error))
	// Texts returns the forms of texts that the tags of settings name.
	Texts() setting.Texts
	// OtherKeys returns the keys of a struct that are read without a field.
	OtherKeys(in reflect.Type) []string
	// Meant returns the valid key that was probably meant by an unknown key, or "".
	Meant(key string, valid []string) string
	// CheckStruct checks a struct after the struct's keys were read, at least by Decoder.Validate.
	CheckStruct(sec *Section, v any)
	// CheckText checks a text as it is written, before references are replaced.
	CheckText(s *Slot, text string) error
	// NoteExpanded is called with each text that contains values from the environment.
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

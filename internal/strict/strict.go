package strict

import (
	"reflect"

	"go.yaml.in/yaml/v4"
)

// Decoder reads one file. It notes every fault and goes on, so that one run
// shows them all; what had a fault keeps the value that it had before.
type Decoder struct {
	// File and Program are the names by which messages call the file, and the
	// program that reads it.
	File, Program string
	// Foreign says that the file was made for another program: a key that nobody
	// knows is a warning then, and ${env:NAME} is a reference, too.
	Foreign bool
	// Faults are what is wrong with the file, and Warnings what may be, as they
	// were found.
	Faults, Warnings Faults
	// Secrets are the values that came from the environment, with the reference
	// that messages show instead.
	Secrets map[string]string

	// Env looks variables up.
	Env func(string) (string, bool)

	schema Schema
	looked []string // values from the environment that the last Expand has found
}

// Schema is what a decoder does not know by itself about the structs that it
// fills. Each function may be nil. None of them shows a value in an error: it
// may be a secret.
type Schema struct {
	// Value reads a value that has a form of its own into what into points to.
	// known is false for all others.
	Value func(x *Slot, n *yaml.Node, into any) (ok, known bool)
	// Text says what is expected for a type whose values are written as text, and
	// parses them; parse is nil for all others.
	Text func(t reflect.Type) (expected string, parse func(Text) (any, error))
	// Rule returns what checks the value of a key, or of each item of its list,
	// beyond its type, and returns it in its normal form; nil when there is no
	// such rule.
	Rule func(in reflect.Type, key string) func(any) (any, error)
	// TableKey returns what is wrong with a key of a table of names, or nothing.
	TableKey func(table, key string) string
	// Empty returns why a list must not be empty, or nothing.
	Empty func(list string) string
	// Keys returns the keys of a struct that no field of it stands for.
	Keys func(in reflect.Type) []string
	// Meant returns the key that was probably meant by one that nobody knows, or
	// nothing.
	Meant func(key string, valid []string) string
	// Check looks at a struct when its keys have been read. Default:
	// Decoder.Validate.
	Check func(sec *Section, v any)
	// Literal looks at a text as it is written, before references are replaced, and
	// returns what is wrong with it.
	Literal func(x *Slot, text string) error
	// Expanded hears of each text that has values from the environment in it.
	Expanded func(x *Slot, whole string, values []string)
}

// New returns a decoder for a file. env looks variables up.
func New(file, program string, env func(string) (string, bool), s Schema) *Decoder {
	return &Decoder{File: file, Program: program, schema: s, Env: env, Secrets: map[string]string{}}
}

// Quiet returns a decoder of the same file for a first look, whose faults nobody
// hears of.
func (d *Decoder) Quiet() *Decoder {
	return &Decoder{File: d.File, Program: d.Program, Env: d.Env, Secrets: map[string]string{}}
}

func (d *Decoder) text(t reflect.Type) (string, func(Text) (any, error)) {
	if d.schema.Text == nil {
		return "", nil
	}
	return d.schema.Text(t)
}

func (d *Decoder) wrongKey(table, key string) string {
	switch {
	case d.schema.TableKey != nil:
		return d.schema.TableKey(table, key)
	case key == "":
		return "a name is empty"
	}
	return ""
}

func (d *Decoder) meant(key string, valid []string) string {
	if d.schema.Meant == nil {
		return ""
	}
	return d.schema.Meant(key, valid)
}

func (d *Decoder) check(sec *Section, v any) {
	if d.schema.Check == nil {
		d.Validate(sec, v)
		return
	}
	d.schema.Check(sec, v)
}

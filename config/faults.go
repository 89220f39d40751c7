package config

import (
	"fmt"

	"github.com/mcp-bridge/bridge/internal/strict"
)

// Fault is one fault of a file, with its line.
type Fault = strict.Fault

// Faults is the error of Load and Parse: all faults of the file, in the order of lines.
type Faults = strict.Faults

// A breach is a rule that the value of a key breaks, alone or together with the value of another key.
type breach struct{ key, other, rule string }

type breaches []breach

// add adds a rule that a key breaks alone.
func (b *breaches) add(key, format string, args ...any) {
	b.with(key, "", fmt.Sprintf(format, args...))
}

// with adds a rule that a key breaks together with the key other.
func (b *breaches) with(key, other, rule string) { *b = append(*b, breach{key, other, rule}) }

package toolset

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
	"github.com/mcp-bridge/bridge/internal/setting"
)

// AsResource is the As of a GET that is a resource instead of a tool.
const AsResource = "resource"

// bounded are the settings of an entry that have bounds, by their keys in files.
type bounded struct {
	Timeout  time.Duration `yaml:"timeout"`
	Attempts int           `yaml:"retry" min:"1" max:"10"`
	As       string        `yaml:"as" one_of:"tool resource"`
	KeepFor  time.Duration `yaml:"cache"`
	Limits   ToolLimits    `yaml:"limits"`
}

// BoundFaults returns the faults in settings of an entry that are out of their bounds.
func (e *Entry) BoundFaults() (faults Faults) {
	settings := struct { // zero values are allowed in a part only
		Entry bounded `yaml:"entry"`
	}{bounded{
		Timeout:  e.Timeout,
		Attempts: e.Attempts,
		As:       e.As,
		KeepFor:  e.KeepFor,
		Limits:   e.Limits,
	}}
	for _, err := range setting.Faults(&settings, nil) {
		text := strings.TrimPrefix(err.Error(), "entry: ")
		key, _, _ := strings.Cut(text, " is ")
		faults = append(faults, e.KeyFault(key, "%s", text))
	}
	return faults
}

// settings returns the settings for calls of the entry's tool, whose operation is op.
func (e *Entry) settings(op *openapi.Operation) (wire.Settings, Faults) {
	s := wire.Settings{
		Timeout:     e.Timeout,
		Attempts:    e.Attempts,
		KeepFor:     e.KeepFor,
		Failure:     e.Error,
		FailureIf:   e.ErrorIf,
		MaxAnswer:   int(e.Limits.Answer),
		Masked:      e.Masked(),
		MaskedQuery: e.maskedQuery(),
	}
	s.Sets = e.Request != "" || len(e.Headers) > 0 || len(e.Query) > 0 || len(e.Body) > 0 ||
		slices.ContainsFunc(e.Args, func(a Arg) bool { return a.Value != nil })
	var faults Faults
	harmless := e.harmless || e.Writes != nil && !*e.Writes
	if e.Attempts > 1 && !wire.Idempotent(op.Method) {
		s.Repeat = harmless
		if !harmless && !e.SendsKey(op) {
			faults = append(faults, e.KeyFault("retry", "retry: a repeated %s may take effect twice: set writes: false if it changes nothing, or send a header Idempotency-Key", op.Method))
		}
	}
	if e.As == AsResource && op.Method != http.MethodGet {
		faults = append(faults, e.KeyFault("as", "as: resource is for GET, and this is a %s", op.Method))
	}
	if e.Cache != nil && *e.Cache && op.Method != http.MethodGet {
		faults = append(faults, e.KeyFault("cache", "cache is for GET: answers to %s are not cached", op.Method))
	}
	return s, faults
}

// SendsKey reports whether the entry sets an Idempotency-Key, or the operation has a parameter for
// the key.
func (e *Entry) SendsKey(op *openapi.Operation) bool {
	return e.HasKey() || slices.ContainsFunc(op.Parameters, func(p *openapi.Parameter) bool {
		return p.In == openapi.InHeader && strings.EqualFold(p.Name, keyHeader)
	})
}

// HasKey reports whether the entry's headers include an Idempotency-Key.
func (e *Entry) HasKey() bool {
	for name := range e.Headers {
		if strings.EqualFold(name, keyHeader) {
			return true
		}
	}
	return false
}

// Repeat allows the entry's request to be repeated, whatever its method.
func (e *Entry) Repeat() { e.harmless = true }

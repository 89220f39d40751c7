package toolset

import (
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// AsResource is what Tool.As is for a GET that is offered as a resource, and not
// as a tool.
const AsResource = "resource"

// settingFaults reports what is wrong with the settings of an entry, whatever its
// request is.
func (t *Entry) settingFaults() Faults {
	var faults Faults
	add := func(key, text string) { faults = append(faults, t.KeyFault(key, "%s", key+" "+text)) }
	if t.Timeout < 0 {
		add("timeout", "must not be negative")
	}
	if t.Attempts < 0 || t.Attempts > maxAttempts {
		add("retry", "must be 1 to 10, or off")
	}
	if t.As != "" && t.As != "tool" && t.As != AsResource {
		add("as", "must be tool or resource")
	}
	if t.Limits.Answer != 0 && t.Limits.Answer < 1<<10 {
		faults = append(faults, t.KeyFault("limits: answer", "limits: answer must be at least 1KiB"))
	}
	if t.KeepFor < 0 {
		add("cache", "must not be negative")
	}
	return faults
}

// maxAttempts is how often a request may be made, and defaultAttempts how often
// it is unless it is said.
const (
	maxAttempts     = 10
	DefaultAttempts = 3
)

// settings returns what the entry says about the calls of its tool.
func (t *Entry) settings(op *openapi.Operation) (wire.Settings, Faults) {
	s := wire.Settings{Timeout: t.Timeout, KeepFor: t.KeepFor, Failure: t.Error, FailureIf: t.ErrorIf, MaxAnswer: int(t.Limits.Answer), Masked: t.Masked(), MaskedQuery: t.maskedQuery()}
	s.Retries = Retries(t.Attempts)
	s.Sets = t.Request != "" || len(t.Headers) > 0 || len(t.Query) > 0 || len(t.Body) > 0 ||
		slices.ContainsFunc(t.Args, func(a Arg) bool { return a.Value != nil })
	var faults Faults
	harmless := t.harmless || t.Writes != nil && !*t.Writes
	if t.Attempts > 1 && !Repeatable(op.Method) {
		s.Repeat = harmless
		if !harmless && !t.SendsKey(op) {
			faults = append(faults, t.KeyFault("retry", "retry: what a %s does it may do twice: set writes: false if it changes nothing, or send an Idempotency-Key among its headers", op.Method))
		}
	}
	if t.As == AsResource && op.Method != http.MethodGet {
		faults = append(faults, t.KeyFault("as", "as: resource is for GET, and this is a %s", op.Method))
	}
	if t.Cache != nil && *t.Cache && op.Method != http.MethodGet {
		faults = append(faults, t.KeyFault("cache", "cache is for GET: the answer to a %s is not kept", op.Method))
	}
	return s, faults
}

// Retries returns attempts as package wire counts them.
func Retries(attempts int) int {
	if attempts == 1 {
		return -1
	}
	return max(attempts-1, 0) // 0 is the default
}

// Repeatable reports whether a request of that method may be made twice.
func Repeatable(method string) bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete}, method)
}

// keyHeader names a request, so that the API knows it when it is made again.
const keyHeader = "Idempotency-Key"

// SendsKey reports whether requests have a key by which the API knows those that
// are made again.
func (t *Entry) SendsKey(op *openapi.Operation) bool {
	return t.HasKey() || slices.ContainsFunc(op.Parameters, func(p *openapi.Parameter) bool {
		return p.In == openapi.InHeader && strings.EqualFold(p.Name, keyHeader)
	})
}

// HasKey reports whether the key is among the entry's headers.
func (t *Entry) HasKey() bool {
	for name := range t.Headers {
		if strings.EqualFold(name, keyHeader) {
			return true
		}
	}
	return false
}

// Repeat says that the entry's request may be made again, whatever its method.
func (t *Entry) Repeat() { t.harmless = true }

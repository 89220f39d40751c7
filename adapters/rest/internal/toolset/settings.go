package toolset

import (
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// AsResource is the As of a GET that is a resource instead of a tool.
const AsResource = "resource"

// settingFaults reports faults in the settings of an entry that do not depend on its request.
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

// maxAttempts is how often a request may be made at most, and DefaultAttempts how often by default.
const (
	maxAttempts     = 10
	DefaultAttempts = 3
)

// settings returns the settings of the calls of the entry's tool.
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
			faults = append(faults, t.KeyFault("retry", "retry: a repeated %s may take effect twice: set writes: false if it changes nothing, or send a header Idempotency-Key", op.Method))
		}
	}
	if t.As == AsResource && op.Method != http.MethodGet {
		faults = append(faults, t.KeyFault("as", "as: resource is for GET, and this is a %s", op.Method))
	}
	if t.Cache != nil && *t.Cache && op.Method != http.MethodGet {
		faults = append(faults, t.KeyFault("cache", "cache is for GET: answers to %s are not cached", op.Method))
	}
	return s, faults
}

// Retries converts attempts to the count of package wire.
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

// keyHeader identifies a request to the API when it is made again.
const keyHeader = "Idempotency-Key"

// SendsKey reports whether requests may carry an Idempotency-Key.
func (t *Entry) SendsKey(op *openapi.Operation) bool {
	return t.HasKey() || slices.ContainsFunc(op.Parameters, func(p *openapi.Parameter) bool {
		return p.In == openapi.InHeader && strings.EqualFold(p.Name, keyHeader)
	})
}

// HasKey reports whether the entry's headers include an Idempotency-Key.
func (t *Entry) HasKey() bool {
	for name := range t.Headers {
		if strings.EqualFold(name, keyHeader) {
			return true
		}
	}
	return false
}

// Repeat allows the entry's request to be made again, whatever its method.
func (t *Entry) Repeat() { t.harmless = true }

package tools

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	publication "github.com/mcp-bridge/bridge/adapters/rest/internal/catalog"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// maxKept bounds the KeepFor of a catalogue's tools.
const maxKept = time.Hour

// bound copies the settings of a catalogue's tool into e, within the limits of the configuration,
// since a catalogue is trusted less. Each changed setting causes a warning.
func (s *Settings) bound(e *toolset.Entry, t *publication.Tool) (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	most := cmp.Or(s.API.MaxTimeout, s.API.Timeout, wire.DefaultTimeout)
	if e.Timeout = min(t.Timeout, most); t.Timeout > most {
		warn("timeout is %v, and the server's max_timeout allows %v", t.Timeout, most)
	}
	method, _, _ := strings.Cut(strings.TrimSpace(t.Request), " ")
	allowed := cmp.Or(s.Attempts, toolset.DefaultAttempts)
	if e.Attempts = min(t.Attempts, allowed); t.Attempts > allowed {
		warn("retry is %d, and attempts allows %d", t.Attempts, allowed)
	}
	if !toolset.Repeatable(method) {
		harmless := t.Annotations["readOnlyHint"] || t.Annotations["idempotentHint"]
		switch {
		case !s.RetryPublished:
			if t.Attempts > 1 {
				warn("retry: a %s is not retried, unless the configuration has catalog: { retry: true }", method)
			}
			e.Attempts = 1
		case t.Attempts > 1 && harmless:
			e.Repeat()
		case t.Attempts > 1 && !e.HasKey():
			warn("retry: a repeated %s may take effect twice: it is retried only with readOnlyHint or idempotentHint among the annotations, or a header Idempotency-Key", method)
			e.Attempts = 1
		}
	}
	e.Limits.Answer = toolset.Bytes(min(t.Answer, s.API.MaxAnswer))
	if t.Answer > s.API.MaxAnswer {
		warn("limits: answer is %d, and the limits of the API allow %d", t.Answer, s.API.MaxAnswer)
	}
	e.Cache, e.KeepFor = t.Cache, min(t.KeepFor, maxKept)
	switch {
	case t.Cache == nil || !*t.Cache:
	case method != http.MethodGet:
		e.Cache, e.KeepFor = nil, 0
		warn("cache is for GET: the answer to a %s is not kept", method)
	case s.Cache == 0:
		e.Cache, e.KeepFor = nil, 0
		warn("cache: the configuration has no cache for the API")
	case t.KeepFor > maxKept:
		warn("cache is %v, and %v is allowed", t.KeepFor, maxKept)
	}
	return warnings
}

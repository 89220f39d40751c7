package tools

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	publication "github.com/mcp-bridge/bridge/adapters/rest/internal/catalog"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// maxKept bounds the KeepFor of a catalogue's tools.
const maxKept = time.Hour

// bound keeps the settings of a catalogue's tool within the limits of the configuration, since a
// catalogue is trusted less. Each changed setting causes a warning.
func (s *Settings) bound(t *publication.Tool) (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if most := cmp.Or(s.API.MaxTimeout, s.API.Timeout); t.Timeout > most {
		warn("timeout is %v, and the server's max_timeout allows %v", t.Timeout, most)
		t.Timeout = most
	}
	method, _, _ := strings.Cut(strings.TrimSpace(t.Request), " ")
	asked, allowed := t.Attempts, s.API.Attempts
	if asked > allowed {
		warn("retry is %d, and attempts allows %d", asked, allowed)
		t.Attempts = allowed
	}
	if !wire.Idempotent(method) {
		harmless := t.Annotations["readOnlyHint"] || t.Annotations["idempotentHint"]
		switch {
		case !s.RetryPublished:
			if asked > 1 {
				warn("retry: a %s is not retried, unless the configuration has catalog: { retry: true }", method)
			}
			t.Attempts = 1
		case asked > 1 && harmless:
			t.Repeat()
		case asked > 1 && !t.HasKey():
			warn("retry: a repeated %s may take effect twice: it is retried only with readOnlyHint or idempotentHint among the annotations, or a header Idempotency-Key", method)
			t.Attempts = 1
		}
	}
	if most := s.API.Limits.Answer; t.Limits.Answer > most {
		warn("limits: answer is %d, and the limits of the API allow %d", t.Limits.Answer, most)
		t.Limits.Answer = most
	}
	switch {
	case t.Cache == nil || !*t.Cache:
	case method != http.MethodGet:
		t.Cache, t.KeepFor = nil, 0
		warn("cache is for GET: the answer to a %s is not kept", method)
	case s.Cache == 0:
		t.Cache, t.KeepFor = nil, 0
		warn("cache: the configuration has no cache for the API")
	case t.KeepFor > maxKept:
		warn("cache is %v, and %v is allowed", t.KeepFor, maxKept)
		t.KeepFor = maxKept
	}
	return warnings
}

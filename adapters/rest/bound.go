package rest

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

// maxKept is the longest time for which a catalogue may have answers cached that name no time
// themselves.
const maxKept = time.Hour

// bound copies a catalogue's settings for a tool's calls into e, within the limits of the
// configuration: a catalogue is trusted less. Changed settings cause warnings.
func (c *Config) bound(e *toolset.Entry, p *publication.Tool, o *Options) (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	most := cmp.Or(o.MaxTimeout, o.Timeout, wire.DefaultTimeout)
	if e.Timeout = min(p.Timeout, most); p.Timeout > most {
		warn("timeout is %v, and the server's max_timeout allows %v", p.Timeout, most)
	}
	method, _, _ := strings.Cut(strings.TrimSpace(p.Request), " ")
	allowed := cmp.Or(c.Attempts, toolset.DefaultAttempts)
	if e.Attempts = min(p.Attempts, allowed); p.Attempts > allowed {
		warn("retry is %d, and attempts allows %d", p.Attempts, allowed)
	}
	if !toolset.Repeatable(method) {
		harmless := p.Annotations["readOnlyHint"] || p.Annotations["idempotentHint"]
		switch {
		case !c.Catalog.Retry:
			if p.Attempts > 1 {
				warn("retry: a %s is not retried, unless the configuration has catalog: { retry: true }", method)
			}
			e.Attempts = 1
		case p.Attempts > 1 && harmless:
			e.Repeat()
		case p.Attempts > 1 && !e.HasKey():
			warn("retry: a repeated %s may take effect twice: it is retried only with readOnlyHint or idempotentHint among the annotations, or a header Idempotency-Key", method)
			e.Attempts = 1
		}
	}
	e.Limits.Answer = toolset.Bytes(min(p.Answer, c.maxAnswer()))
	if p.Answer > c.maxAnswer() {
		warn("limits: answer is %d, and the limits of the API allow %d", p.Answer, c.maxAnswer())
	}
	e.Cache, e.KeepFor = p.Cache, min(p.KeepFor, maxKept)
	switch {
	case p.Cache == nil || !*p.Cache:
	case method != http.MethodGet:
		e.Cache, e.KeepFor = nil, 0
		warn("cache is for GET: the answer to a %s is not kept", method)
	case c.Cache == 0:
		e.Cache, e.KeepFor = nil, 0
		warn("cache: the configuration has no cache for the API")
	case p.KeepFor > maxKept:
		warn("cache is %v, and %v is allowed", p.KeepFor, maxKept)
	}
	return warnings
}

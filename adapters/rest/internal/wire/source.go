package wire

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// Source makes calls to one API. Its methods are safe for concurrent use.
type Source struct {
	o          Options
	reach      *Reach
	http       doer
	clients    map[clientKey]doer // for servers that http must not reach
	forward    map[string]string  // by the caller's header: the header of the request
	schemas    *validate.Cache
	budget     *Budget
	log        *slog.Logger
	hidden     map[string]bool // configured headers whose values are secret
	mismatched sync.Map        // the warnings that once has logged
	misplaced  sync.Map        // the origins that warnRefused has logged
	secrets    *sanitize.Mask  // the configured secrets, and tokens
	life       context.Context
	stop       context.CancelFunc
	closeIdle  func()

	mu     sync.Mutex // guards closed
	closed bool
	wg     sync.WaitGroup // of calls
}

// clientKey says how a client for less trusted servers differs from Source.http.
type clientKey struct {
	bare  bool // without the client certificate
	guard guard
}

// doer sends requests, as http.Client does.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

// once logs a warning about a tool, but the same warning only once.
func (s *Source) once(tool, what string, err error) {
	if _, said := s.mismatched.LoadOrStore(tool+"\n"+what, true); !said {
		s.log.Warn(what, "tool", tool, "err", err)
	}
}

// Reach returns the servers of the API.
func (s *Source) Reach() *Reach { return s.reach }

// client returns the client for servers with the guard g; bare excludes the client certificate.
func (s *Source) client(bare bool, g guard) doer {
	c := clientKey{bare && s.o.HTTP.CertFile != "", g}
	if c == (clientKey{}) {
		return s.http
	}
	return s.clients[c]
}

// timeout returns how long a call may take.
func (s *Source) timeout(c *Call) time.Duration {
	t := cmp.Or(max(c.Settings.Timeout, 0), s.o.Timeout)
	if most := s.o.MaxTimeout; most > 0 {
		t = min(t, most)
	}
	return t
}

// maxAnswer returns how many bytes of text a result may have.
func (s *Source) maxAnswer(c *Call) int {
	return cmp.Or(max(c.Settings.MaxAnswer, 0), int(s.o.Limits.Answer))
}

// retries returns how often a request may be sent again.
func (s *Source) retries(p *Plan) int {
	if !p.repeatable() {
		return 0
	}
	return cmp.Or(max(p.settings.Attempts, 0), s.o.Attempts) - 1
}

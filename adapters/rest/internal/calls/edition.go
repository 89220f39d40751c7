package calls

import (
	"sync"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/tools"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/wire"
)

// Edition is the API as one reading found it: the tools, and the source that calls them. A call uses
// the same edition until its end.
type Edition struct {
	*tools.Set
	source    *wire.Source
	nowhere   error    // why no call can be made: the API has no server; nil otherwise
	home      string   // the origin of the API's own server; empty if there is none
	tokens    []string // origins of the token endpoints
	untrusted []string // origins that get no credentials; see wire.Reach

	mu    sync.Mutex // guards users
	users int        // APIs that use the edition
}

// use is one API's use of an edition, which several may share.
type use struct {
	*Edition
	calls sync.WaitGroup // calls in flight; Add is called with API.mu held, while the use is current
}

// shared adds a user.
func (e *Edition) shared() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users++
}

// left ends one API's use. It reports whether that was the last use: then the caller closes the source.
func (e *Edition) left() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users--
	return e.users == 0
}

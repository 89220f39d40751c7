package admin

import (
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
)

// Self is who looks, and what that one may.
type Self struct {
	Principal string `json:"principal"`
	Look      bool   `json:"look"`
	Act       bool   `json:"act"`
	// Keys says that there are access rules, so that one can sign in and out.
	Keys bool `json:"keys"`
	// Payloads says that what messages carry may be seen.
	Payloads bool   `json:"payloads"`
	Version  string `json:"version"`
	// Actions are the addresses of what can be done.
	Actions []string `json:"actions"`
}

// Me returns who asks. keys says that there are access rules, and payloads that operators see
// what messages carry.
func (a *API) Me(c *Call, keys, payloads bool, version string) (any, error) {
	me := Self{Principal: c.Principal, Look: c.Look, Act: c.Act, Keys: keys, Payloads: payloads && c.Act, Version: version, Actions: []string{}}
	for _, route := range a.routes {
		if route.Method == http.MethodPost {
			me.Actions = append(me.Actions, route.Path)
		}
	}
	return me, nil
}

// FileText returns what is in the configuration file now.
func FileText(r *reload.Reloader) ([]byte, error) {
	if config.Stream(r.File()) {
		return nil, errors.New("it can be read only once")
	}
	return os.ReadFile(r.File())
}

// FileShown is a configuration file as it may be shown.
type FileShown struct {
	File string `json:"file"`
	// Text is that of the file now: see Masked.
	Text        string     `json:"text"`
	Hash        string     `json:"hash"` // of what counts
	LoadedAt    time.Time  `json:"loaded_at"`
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`
	Pending     []string   `json:"pending_restart,omitempty"`
}

// ShowConfig returns the configuration file as it may be shown.
func ShowConfig(r *reload.Reloader) (any, error) {
	file, now := r.File(), r.Status()
	text, err := FileText(r)
	if err != nil {
		return nil, &Refusal{Status: http.StatusConflict, Code: "conflict", Message: "the file cannot be read now: the log says why when it is reloaded"}
	}
	shown, err := Masked(text, "")
	if err != nil {
		return nil, &Refusal{Status: http.StatusConflict, Code: "conflict", Message: err.Error()}
	}
	return &FileShown{file, shown, now.Hash, now.LoadedAt, now.LastError, now.LastErrorAt, now.Pending}, nil
}

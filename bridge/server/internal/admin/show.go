package admin

import (
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
)

// Self is the caller of the API, with its rights.
type Self struct {
	Principal string `json:"principal"`
	Look      bool   `json:"look"`
	Act       bool   `json:"act"`
	// Keys means that access rules exist, so that operators sign in and out.
	Keys bool `json:"keys"`
	// Payloads means that the caller may see the payloads of messages.
	Payloads bool   `json:"payloads"`
	Version  string `json:"version"`
	// Actions are the paths of all actions.
	Actions []string `json:"actions"`
}

// Me returns the caller. keys means that access rules exist, and payloads that operators see the
// payloads of messages.
func (a *API) Me(c *Call, keys, payloads bool, version string) (any, error) {
	me := Self{
		Principal: c.Principal,
		Look:      c.Look,
		Act:       c.Act,
		Keys:      keys,
		Payloads:  payloads && c.Act,
		Version:   version,
		Actions:   []string{},
	}
	for _, route := range a.routes {
		if route.Method == http.MethodPost {
			me.Actions = append(me.Actions, route.Path)
		}
	}
	return me, nil
}

// FileText returns the current content of the configuration file. A stream is an error.
func FileText(r *reload.Reloader) ([]byte, error) {
	if config.Stream(r.File()) {
		return nil, errors.New("it is a stream, which can be read only once")
	}
	return os.ReadFile(r.File())
}

// FileShown is the configuration file for operators, without secrets.
type FileShown struct {
	File string `json:"file"`
	// Text is the file's current text: see Masked.
	Text        string     `json:"text"`
	Hash        string     `json:"hash"` // of the configuration that is used
	LoadedAt    time.Time  `json:"loaded_at"`
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`
	Pending     []string   `json:"pending_restart,omitempty"`
}

// ShowConfig returns the configuration file, without secrets.
func ShowConfig(r *reload.Reloader) (any, error) {
	file, now := r.File(), r.Status()
	text, err := FileText(r)
	if err != nil {
		return nil, &Refusal{
			Status:  http.StatusConflict,
			Code:    "conflict",
			Message: "the file cannot be read now: reload it and see the log for the reason",
		}
	}
	shown, err := Masked(text, "")
	if err != nil {
		return nil, &Refusal{
			Status:  http.StatusConflict,
			Code:    "conflict",
			Message: err.Error(),
		}
	}
	return &FileShown{file, shown, now.Hash, now.LoadedAt, now.LastError, now.LastErrorAt, now.Pending}, nil
}

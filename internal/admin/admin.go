// Package admin serves what operators do over HTTP: actions, each a POST of JSON to an
// address below /ui/api/v1. Who may act is for the bridge to say; a web page that is not
// the bridge's own may not, whoever looks at it.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/visible"
)

// Base is what the addresses begin with, below the bridge's own base path.
const Base = "ui/api/v1/"

// Action does something. body is what was sent, and at most MaxBody bytes. What it
// returns is the answer, as JSON.
type Action func(ctx context.Context, body []byte) (any, error)

// MaxBody bounds the body of a request.
const MaxBody = 64 << 10

// Options are what the actions need of the bridge.
type Options struct {
	Log *slog.Logger
	// Noted is told of each action.
	Noted func(principal, action, outcome string)
	// May returns who makes a request, if whoever it is may act. Others it has answered,
	// or the error says to them why they may not.
	May func(w http.ResponseWriter, r *http.Request) (principal string, known bool, err error)
}

// API is all actions by their names.
type API struct {
	o       Options
	actions map[string]Action
}

// New returns an API without actions.
func New(o Options) *API { return &API{o: o, actions: map[string]Action{}} }

// Add adds an action, before the first request.
func (a *API) Add(name string, do Action) { a.actions[name] = do }

// Has reports whether there is an action of that name, which is a path below Base.
func (a *API) Has(name string) bool { return a.actions[name] != nil }

// Serve answers a request for an action that there is.
func (a *API) Serve(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "method", "this takes POST")
		return
	}
	if !own(r) {
		a.o.Log.Warn("a web page was refused", "action", name, "origin", clip(r.Header.Get("Origin")))
		refuse(w, http.StatusForbidden, "origin", "web pages other than the bridge's own may not do this")
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "content_type", "send JSON: Content-Type: application/json")
		return
	}
	who, known, err := a.o.May(w, r)
	if !known {
		return
	}
	if err != nil {
		a.note(who, name, "denied")
		refuse(w, http.StatusForbidden, "denied", err.Error())
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
	var body json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		a.note(who, name, "error")
		refuse(w, http.StatusBadRequest, "body", "the body must be JSON, such as {}, of at most 64 KiB")
		return
	}
	out, err := a.actions[name](r.Context(), body)
	if err != nil {
		a.note(who, name, "error")
		fail(w, err)
		return
	}
	a.note(who, name, "ok")
	answer(w, http.StatusOK, out)
}

func (a *API) note(who, action, outcome string) {
	a.o.Log.Info("console", "principal", who, "action", action, "outcome", outcome)
	a.o.Noted(who, action, outcome)
}

// own reports whether a request is of no web page, or of one of the bridge's own.
func own(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return false
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return true
	}
	u, err := url.Parse(origins[0])
	return err == nil && len(origins) == 1 && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, r.Host)
}

func clip(s string) string { return s[:min(len(s), 200)] }

// Refusal is an error with the status and the code of its answer.
type Refusal struct {
	Status        int
	Code, Message string
}

// Error returns the message.
func (f *Refusal) Error() string { return f.Message }

// fault is one of a configuration.
type fault struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"` // 0 is about the file as a whole
	Message string `json:"message"`
}

// problem is what an answer says that is an error.
type problem struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Faults  []fault `json:"faults,omitempty"`
}

// fail answers that an action has failed.
func fail(w http.ResponseWriter, err error) {
	if f, ok := errors.AsType[*Refusal](err); ok {
		refuse(w, f.Status, f.Code, f.Message)
		return
	}
	p := problem{Code: "invalid", Message: err.Error()}
	if faults, ok := errors.AsType[config.Faults](err); ok {
		p.Message = "the configuration has faults"
		for _, f := range faults {
			p.Faults = append(p.Faults, fault{f.File, f.Line, f.Message})
		}
	}
	answer(w, http.StatusUnprocessableEntity, map[string]any{"error": p})
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, map[string]any{"error": problem{Code: code, Message: message}})
}

func answer(w http.ResponseWriter, status int, out any) {
	body, err := json.MarshalIndent(out, "", "    ")
	if err != nil {
		http.Error(w, "the answer is no JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(visible.JSON(body), '\n')) // who has gone needs no answer
}

// Read reads the body of an action into a struct. Members that it does not have are
// refused.
func Read(body []byte, into any) error {
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return &Refusal{http.StatusBadRequest, "body", strings.TrimPrefix(err.Error(), "json: ")}
	}
	return nil
}

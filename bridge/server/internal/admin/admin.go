// Package admin serves what operators see and do over HTTP: each at an address below
// /ui/api/v1, in JSON. Who may do what is for the bridge to say; a web page that is not
// the bridge's own may nothing, whoever looks at it.
package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/logs"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Base is what the addresses begin with, below the bridge's own base path.
const Base = "ui/api/v1/"

// MaxBody bounds the body of a request.
const MaxBody = 64 << 10

// HasConsole reports whether a configuration has the page for operators.
func HasConsole(c *config.Config) bool {
	if c.Console == "" {
		return c.ConsoleListen != "" || len(c.Access) == 0 && config.Loopback(c.Listen)
	}
	return c.Console != config.ConsoleOff
}

// Right is what a caller has to have.
type Right string

// The rights.
const (
	// Own is that of everybody who is let in: who may not look sees what is its own.
	Own Right = "own"
	// Look is to see what is of others.
	Look Right = "look"
	// Act is to change something that is of others. Who may act may look.
	Act Right = "act"
)

// Caller is who makes a request.
type Caller struct {
	Principal string // empty where there are no access rules
	Look, Act bool
	Cookie    bool // it is a page that somebody has signed in on
	// Good reports whether the caller would be let in still; nil means that it would.
	Good func() bool
}

// Sees reports whether the caller may see what is of that principal.
func (c *Caller) Sees(principal string) bool { return c.Look || c.Principal == principal }

// Call is a request that is let in.
type Call struct {
	Caller
	Context context.Context
	Query   url.Values
	Body    []byte // of a POST: JSON of at most MaxBody bytes
	vars    map[string]string
}

// Var returns what the address has in the place of {name}.
func (c *Call) Var(name string) string { return c.vars[name] }

// Number returns a number of the query, or otherwise.
func (c *Call) Number(name string, otherwise, most int) (int, error) {
	text := c.Query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, &Refusal{Status: http.StatusBadRequest, Code: "query", Message: name + " must be a number from 1 to " + strconv.Itoa(most)}
	}
	return n, nil
}

// Route is one address.
type Route struct {
	// Method is GET, which changes nothing, or POST.
	Method string
	// Path is below Base. {name} stands for one part of it.
	Path  string
	Right Right
	// Do returns the answer, as JSON.
	Do func(c *Call) (any, error)
	// Stream answers in the place of Do.
	Stream func(w http.ResponseWriter, r *http.Request, c *Call)
}

// match returns what the path has in the places of names; nil if it is another's.
func (t *Route) match(path string) map[string]string {
	want, got := strings.Split(t.Path, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil
	}
	vars := map[string]string{}
	for i, part := range want {
		if name, ok := strings.CutPrefix(part, "{"); ok && got[i] != "" {
			vars[strings.TrimSuffix(name, "}")] = got[i]
		} else if part != got[i] {
			return nil
		}
	}
	return vars
}

// Options are what the API needs of the bridge.
type Options struct {
	Log *slog.Logger
	// Host returns the host that the client of a request has asked for.
	Host func(r *http.Request) string
	// Noted is told of each action.
	Noted func(principal, action, outcome string)
}

// Who returns who makes a request, if whoever it is is let in. Others it has answered, or
// the error says to them why they are not.
type Who func(w http.ResponseWriter, r *http.Request) (c Caller, known bool, err error)

// API is all routes.
type API struct {
	o       Options
	routes  []Route
	refused logs.Limiter // about the pages of others
}

// refusedEvery is how often there may be a line about the pages of others.
const refusedEvery = 10 * time.Second

// New returns an API without routes.
func New(o Options) *API { return &API{o: o} }

// Add adds routes, before the first request.
func (a *API) Add(routes ...Route) { a.routes = append(a.routes, routes...) }

// Routes returns all routes.
func (a *API) Routes() []Route { return slices.Clone(a.routes) }

// Has reports whether there is such a path below Base.
func (a *API) Has(path string) bool {
	return slices.ContainsFunc(a.routes, func(t Route) bool { return t.match(path) != nil })
}

// Serve answers a request for a path that there is.
func (a *API) Serve(w http.ResponseWriter, r *http.Request, path string, who Who) {
	w.Header().Set("Cache-Control", "no-store")
	var route *Route
	var vars map[string]string
	var methods []string
	for i := range a.routes {
		if found := a.routes[i].match(path); found != nil {
			if methods = append(methods, a.routes[i].Method); a.routes[i].Method == r.Method {
				route, vars = &a.routes[i], found
			}
		}
	}
	if route == nil {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		Refuse(w, http.StatusMethodNotAllowed, "method", "this takes "+strings.Join(methods, " or "))
		return
	}
	if !a.Admits(w, r, path) {
		return
	}
	c, known, err := who(w, r)
	if !known {
		return
	}
	action := r.Method == http.MethodPost
	switch {
	case err != nil:
	case route.Right == Act && !c.Act:
		err = errors.New("this caller may not do this: list its name in admin of the configuration file")
	case route.Right == Look && !c.Look:
		err = errors.New("this caller may not see this: list its name in viewers of the configuration file")
	}
	if err != nil {
		if action && c.Principal != "" { // otherwise anybody could fill the log
			a.note(c.Principal, path, "denied")
		}
		Refuse(w, http.StatusForbidden, "denied", err.Error())
		return
	}
	call := &Call{Caller: c, Context: r.Context(), Query: r.URL.Query(), vars: vars}
	if route.Stream != nil {
		route.Stream(w, r, call)
		return
	}
	if action {
		var ok bool
		if call.Body, ok = Body(w, r); !ok {
			a.note(c.Principal, path, "error")
			return
		}
	}
	out, err := route.Do(call)
	if err != nil {
		if action {
			a.note(c.Principal, path, "error")
		}
		fail(w, err)
		return
	}
	if action {
		a.note(c.Principal, path, "ok")
	}
	Answer(w, http.StatusOK, out)
}

// Admits reports whether a request is of no other web page, and is JSON if it changes
// something. Others it has answered.
func (a *API) Admits(w http.ResponseWriter, r *http.Request, what string) bool {
	if !own(r, a.o.Host(r)) {
		if more, due := a.refused.Due(refusedEvery); due {
			a.o.Log.Warn("a web page was refused", "action", clip(what), "origin", clip(r.Header.Get("Origin")), "more", more)
		}
		Refuse(w, http.StatusForbidden, "origin", "web pages other than the bridge's own may not do this")
		return false
	}
	if r.Method == http.MethodGet {
		return true
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); r.Method == http.MethodPost && (err != nil || kind != "application/json") {
		Refuse(w, http.StatusUnsupportedMediaType, "content_type", "send JSON: Content-Type: application/json")
		return false
	}
	return true
}

// bodyWait is how long a body may take to come: anybody may announce one.
const bodyWait = 10 * time.Second

// Body reads the body of a request. One that is not right it has answered.
func Body(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	// The limit stays for a body that does not come whole: net/http reads the rest of it.
	// Otherwise it goes: net/http would take its end for the client's going.
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyWait))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var text json.RawMessage
	if err == nil {
		_ = rc.SetReadDeadline(time.Time{})
		err = json.NewDecoder(bytes.NewReader(body)).Decode(&text)
	}
	if err != nil {
		Refuse(w, http.StatusBadRequest, "body", "the body must be JSON, such as {}, of at most 64 KiB")
		return nil, false
	}
	return text, true
}

func (a *API) note(who, action, outcome string) {
	action = clip(action)
	a.o.Log.Info("console", "principal", who, "action", action, "outcome", outcome)
	a.o.Noted(who, action, outcome)
}

// own reports whether a request is of no web page, or of one of the bridge's own.
func own(r *http.Request, host string) bool {
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
	return err == nil && len(origins) == 1 && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, host)
}

func clip(s string) string { return s[:min(len(s), 200)] }

// Refusal is an error with the status and the code of its answer.
type Refusal struct {
	Status        int
	Code, Message string
}

// Error returns the message.
func (f *Refusal) Error() string { return f.Message }

// NotFound is the error of what is not there, or not for this caller to know of.
func NotFound(what string) error {
	return &Refusal{http.StatusNotFound, "not_found", "there is no " + what}
}

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

// fail answers that a request has failed.
func fail(w http.ResponseWriter, err error) {
	if f, ok := errors.AsType[*Refusal](err); ok {
		Refuse(w, f.Status, f.Code, f.Message)
		return
	}
	p := problem{Code: "invalid", Message: err.Error()}
	if faults, ok := errors.AsType[config.Faults](err); ok {
		p.Message = "the configuration has faults"
		for _, f := range faults {
			p.Faults = append(p.Faults, fault{f.File, f.Line, f.Message})
		}
	}
	Answer(w, http.StatusUnprocessableEntity, map[string]any{"error": p})
}

// Refuse answers with an error.
func Refuse(w http.ResponseWriter, status int, code, message string) {
	Answer(w, status, map[string]any{"error": problem{Code: code, Message: message}})
}

// Answer answers with JSON.
func Answer(w http.ResponseWriter, status int, out any) {
	body, err := json.MarshalIndent(out, "", "    ")
	if err != nil {
		http.Error(w, "the answer is no JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(sanitize.JSON(body), '\n')) // who has gone needs no answer
}

// Read reads the body of a request into a struct. Members that it does not have are
// refused.
func Read(body []byte, into any) error {
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return &Refusal{http.StatusBadRequest, "body", strings.TrimPrefix(err.Error(), "json: ")}
	}
	return nil
}

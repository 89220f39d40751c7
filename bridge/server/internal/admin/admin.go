// Package admin serves the API of operators below /ui/api/v1, in JSON. The bridge decides which caller has which
// rights. The package refuses requests of web pages other than the bridge's own, whoever the caller is.
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
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/logs"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Base begins the paths of the API, below the bridge's own base path.
const Base = "ui/api/v1/"

// MaxBody bounds the body of a request.
const MaxBody = 64 << 10

// HasConsole reports whether a configuration enables the page for operators.
func HasConsole(c *config.Config) bool {
	if c.Console == "" {
		return c.ConsoleListen != "" || len(c.Access) == 0 && config.Loopback(c.Listen)
	}
	return c.Console != config.ConsoleOff
}

// Right is the right that a route requires of its caller.
type Right string

// These are the rights of a Route.
const (
	// Own is the right of every caller. A caller without Look sees only its own data.
	Own Right = "own"
	// Look is the right to see what belongs to other callers.
	Look Right = "look"
	// Act is the right to change what belongs to other callers, and the bridge itself. It includes Look.
	Act Right = "act"
)

// Caller is the caller of a request.
type Caller struct {
	Principal string // empty without access rules
	Look, Act bool
	Cookie    bool // the request comes from a page that an operator signed in on
	// Valid reports whether the caller's credentials are still accepted; nil means always.
	Valid func() bool
}

// Sees reports whether the caller may see what belongs to a principal.
func (c *Caller) Sees(principal string) bool { return c.Look || c.Principal == principal }

// Call is an accepted request.
type Call struct {
	Caller
	Context context.Context
	Query   url.Values
	Body    []byte // of a POST: JSON of at most MaxBody bytes
	// Harmless is set by Do if a POST changed nothing: then the action is not recorded.
	Harmless bool

	vars map[string]string
}

// Var returns the segment of the path at the place of {name}.
func (c *Call) Var(name string) string { return c.vars[name] }

// Number returns the number that the query has under name. Number returns otherwise if the query has none, and an
// error for a number below 1 or above most.
func (c *Call) Number(name string, otherwise, most int) (int, error) {
	text := c.Query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, &Refusal{
			Status:  http.StatusBadRequest,
			Code:    "query",
			Message: name + " must be a number from 1 to " + strconv.Itoa(most),
		}
	}
	return n, nil
}

// Route is one path and method of the API.
type Route struct {
	// Method is GET, which changes nothing, or POST.
	Method string
	// Path is below Base. {name} stands for one segment.
	Path  string
	Right Right
	// Do returns the answer, which is written as JSON.
	Do func(c *Call) (any, error)
	// Stream answers instead of Do.
	Stream func(w http.ResponseWriter, r *http.Request, c *Call)
}

// match returns the segments of path at the places of names in the route's path, by name; nil if path is not a path
// of the route.
func (r *Route) match(path string) map[string]string {
	want, got := strings.Split(r.Path, "/"), strings.Split(path, "/")
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

// Bridge is the bridge that an API belongs to.
type Bridge interface {
	// RequestedHost returns the host that a client requested.
	RequestedHost(r *http.Request) string
	// Acted is called after each action that is recorded. outcome is ok, error or denied.
	Acted(principal, action, outcome string)
}

// Who returns the caller of a request. If the request is not accepted, Who answers the request and known is false, or
// Who returns an error with the reason for the caller.
type Who func(w http.ResponseWriter, r *http.Request) (c Caller, known bool, err error)

// API serves routes.
type API struct {
	log     *slog.Logger
	bridge  Bridge
	routes  []Route
	refused logs.Limiter // of lines about foreign web pages
}

// refusedLogEvery is the least time between two lines about foreign web pages.
const refusedLogEvery = 10 * time.Second

// New returns an API without routes.
func New(log *slog.Logger, b Bridge) *API { return &API{log: log, bridge: b} }

// Add adds routes, before the first request.
func (a *API) Add(routes ...Route) { a.routes = append(a.routes, routes...) }

func (a *API) Routes() []Route { return slices.Clone(a.routes) }

// Has reports whether a path below Base has a route.
func (a *API) Has(path string) bool {
	return slices.ContainsFunc(a.routes, func(r Route) bool { return r.match(path) != nil })
}

// Serve answers a request for a path that has a route.
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
		Refuse(w, http.StatusMethodNotAllowed, "method", "use "+strings.Join(methods, " or "))
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
		err = errors.New("this caller may not act: list its name in admin of the configuration file")
	case route.Right == Look && !c.Look:
		err = errors.New("this caller may not read this: list its name in viewers of the configuration file")
	}
	if err != nil {
		if action && c.Principal != "" { // otherwise any client could fill the log
			a.record(c.Principal, path, "denied")
		}
		Refuse(w, http.StatusForbidden, "denied", err.Error())
		return
	}
	call := &Call{
		Caller:  c,
		Context: r.Context(),
		Query:   r.URL.Query(),
		vars:    vars,
	}
	if route.Stream != nil {
		route.Stream(w, r, call)
		return
	}
	if action {
		var ok bool
		if call.Body, ok = Body(w, r); !ok {
			a.record(c.Principal, path, "error")
			return
		}
	}
	out, err := route.Do(call)
	action = action && !call.Harmless
	if err != nil {
		if action {
			a.record(c.Principal, path, "error")
		}
		fail(w, err)
		return
	}
	if action {
		a.record(c.Principal, path, "ok")
	}
	Answer(w, http.StatusOK, out)
}

// Admits reports whether a request comes from no foreign web page, and has a JSON body if it is a POST. Otherwise,
// Admits answers the request.
func (a *API) Admits(w http.ResponseWriter, r *http.Request, what string) bool {
	if !isOwnPage(r, a.bridge.RequestedHost(r)) {
		if more, due := a.refused.Due(refusedLogEvery); due {
			a.log.Warn("web page refused", "action", clip(what), "origin", clip(r.Header.Get("Origin")), "more", more)
		}
		Refuse(w, http.StatusForbidden, "origin", "only the bridge's own web pages may use this")
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

// bodyWait bounds the time for reading a body: any client may announce a body and not send it.
const bodyWait = 10 * time.Second

// Body reads the body of a request. If the body is not JSON of at most MaxBody bytes, Body answers the request and
// reports false.
func Body(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	// For an incomplete body, the deadline stays, since net/http reads the rest of the body. For a complete body, the
	// deadline is removed: when a deadline passes, net/http treats the connection as ended.
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyWait))
	body, err := io.ReadAll(httpio.MaxBytes(w, r.Body, MaxBody))
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

func (a *API) record(who, action, outcome string) {
	action = clip(action)
	a.log.Info("console", "principal", who, "action", action, "outcome", outcome)
	a.bridge.Acted(who, action, outcome)
}

// isOwnPage reports whether a request comes from a page of the bridge, which the client requested at host, or from no
// web page.
func isOwnPage(r *http.Request, host string) bool {
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

func (r *Refusal) Error() string { return r.Message }

// NotFound returns the error of a request for what does not exist, or what the caller may not see: callers cannot
// tell which.
func NotFound(what string) error {
	return &Refusal{http.StatusNotFound, "not_found", "there is no " + what}
}

type fault struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"` // 0 means the whole file
	Message string `json:"message"`
}

// problem is the error of an answer.
type problem struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Faults  []fault `json:"faults,omitempty"`
}

// fail answers a request with an error of its route.
func fail(w http.ResponseWriter, err error) {
	if r, ok := errors.AsType[*Refusal](err); ok {
		Refuse(w, r.Status, r.Code, r.Message)
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

// Refuse answers a request with an error.
func Refuse(w http.ResponseWriter, status int, code, message string) {
	Answer(w, status, map[string]any{"error": problem{Code: code, Message: message}})
}

// Compact is an answer without indentation: the answer may have very many numbers.
type Compact struct{ Answer any }

// Answer answers a request with JSON.
func Answer(w http.ResponseWriter, status int, out any) {
	var body []byte
	var err error
	if c, ok := out.(Compact); ok {
		body, err = json.Marshal(c.Answer)
	} else {
		body, err = json.MarshalIndent(out, "", "    ")
	}
	if err != nil {
		http.Error(w, "the answer cannot be written as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(sanitize.JSON(body), '\n')) // a client that left needs no answer
}

// Read reads the body of a request into a struct. Read refuses members that the struct does not have.
func Read(body []byte, into any) error {
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return &Refusal{http.StatusBadRequest, "body", strings.TrimPrefix(err.Error(), "json: ")}
	}
	return nil
}

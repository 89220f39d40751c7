package admin

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/guard/breaker"
	"github.com/mcp-bridge/bridge/bridge/guard/drain"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/logs"
)

// Operator shows and ends the sessions, calls and connections of a gateway.
type Operator struct {
	Bridge gateway.Gateway
	Calls  *calls.Calls
	Logs   *logs.Log
	States States
}

// States has the configuration and the state of the bridge.
type States interface {
	// Config returns the current configuration, which is read only.
	Config() *config.Config
	// Keyed reports whether there are access rules. Without them, there is only one caller.
	Keyed() bool
	// Overview returns the state of the bridge that a caller may see.
	Overview(c *Caller) Overview
	// State returns the state of a server.
	State(server string) (any, error)
}

// Routes returns the routes of the operator.
func (o *Operator) Routes() []Route {
	return []Route{
		{Method: "GET", Path: "sessions", Right: Own, Do: o.showSessions},
		{Method: "GET", Path: "calls", Right: Own, Do: o.showCalls},
		{Method: "GET", Path: "calls/{id}", Right: Own, Do: o.showCall},
		{Method: "GET", Path: "approvals", Right: Look, Do: o.showApprovals},
		{Method: "GET", Path: "log", Right: Act, Do: o.showLog},
		{Method: "POST", Path: "arguments", Right: Look, Do: o.checkArguments},
		{Method: "POST", Path: "approvals/{id}", Right: Act, Do: o.decide},
		{Method: "POST", Path: "calls/{id}/cancel", Right: Own, Do: o.cancelCall},
		{Method: "POST", Path: "sessions/{id}/end", Right: Own, Do: o.endSession},
		{Method: "POST", Path: "servers/{name}/breaker", Right: Act, Do: o.forceBreaker},
		{Method: "POST", Path: "servers/{name}/lists/forget", Right: Act, Do: o.forgetLists},
		{Method: "POST", Path: "servers/{name}/probe", Right: Act, Do: o.probe},
		{Method: "POST", Path: "servers/{name}/drain", Right: Act, Do: o.drain},
		{Method: "POST", Path: "servers/{name}/resume", Right: Act, Do: o.resume},
		{Method: "POST", Path: "servers/{name}/connections/stop", Right: Act, Do: o.stopIdle},
		{Method: "POST", Path: "servers/{name}/connections/{id}/stop", Right: Act, Do: o.stopConnection},
	}
}

// DefaultRows is the default number of rows of an answer, and MostRows the largest.
const (
	DefaultRows = 200
	MostRows    = 1000
)

// SessionRows are the sessions that a caller may see.
type SessionRows struct {
	Sessions []gateway.SessionStatus `json:"sessions"` // the newest first
	Total    int                     `json:"total"`
	// Sessionless is nil for a caller that may not look.
	Sessionless *Sessionless `json:"without_session,omitempty"`
}

// Sessionless counts the calls and subscriptions of stateless clients.
type Sessionless struct {
	Calls         int `json:"calls"`
	Subscriptions int `json:"subscriptions"`
}

func (o *Operator) showSessions(c *Call) (any, error) {
	limit, err := c.Number("limit", DefaultRows, MostRows)
	if err != nil {
		return nil, err
	}
	return o.Sessions(&c.Caller, limit), nil
}

// Sessions returns the newest sessions that a caller may see, up to limit.
func (o *Operator) Sessions(c *Caller, limit int) *SessionRows {
	all := o.Bridge.Sessions(c.Sees)
	slices.SortFunc(all, func(s, b gateway.SessionStatus) int { return cmp.Or(b.Began.Compare(s.Began), cmp.Compare(s.ID, b.ID)) })
	out := &SessionRows{Sessions: []gateway.SessionStatus{}, Total: len(all)}
	out.Sessions = append(out.Sessions, all[:min(len(all), limit)]...)
	if c.Look {
		t := o.Bridge.Totals()
		out.Sessionless = &Sessionless{t.Stateless, t.Subscriptions}
	}
	return out
}

// unfailed are the outcomes that are no failure for status=failed. An open circuit breaker refuses many calls, which
// would displace their causes.
var unfailed = []string{"", bridge.Answered.String(), bridge.Cancelled.String(), bridge.CircuitOpen.String()}

// showCalls shows calls. Calls are recorded for a minute from now on.
func (o *Operator) showCalls(c *Call) (any, error) {
	limit, err := c.Number("limit", DefaultRows, MostRows)
	if err != nil {
		return nil, err
	}
	o.Calls.Look(nil, c.Act, o.Bridge.Activity)()
	server, session, principal, status := c.Query.Get("server"), c.Query.Get("session"), c.Query.Get("principal"), c.Query.Get("status")
	is := func(want, has string) bool { return want == "" || want == has }
	out := o.Calls.Show(limit, func(r *calls.Row) bool {
		failed := !slices.Contains(unfailed, r.Outcome)
		return c.Sees(r.Principal) && is(server, r.Server) && is(session, r.Session) && is(principal, r.Principal) && (is(status, r.Outcome) || status == "failed" && failed)
	})
	explain(o.Calls, c.Act, out)
	return out, nil
}

// explain adds what failed tools said, for callers who may see results while results are stored.
func explain(all *calls.Calls, act bool, shown *calls.Shown) {
	if !act || all.Keeps == nil || !all.Keeps() {
		return
	}
	for _, rows := range [][]*calls.Row{shown.Recent, shown.Failures} {
		for i, r := range rows {
			rows[i] = r.Explained()
		}
	}
}

// seenCall returns the call that the path names, if the caller may see that call.
func (o *Operator) seenCall(c *Call) (*calls.Row, error) {
	row := o.Calls.Find(c.Var("id"))
	if row == nil || !c.Sees(row.Principal) {
		return nil, NotFound("call of that id, or it is no longer recorded")
	}
	return row, nil
}

// shownCall is a call, with its payloads for operators if they are recorded.
type shownCall struct {
	*calls.Row
	*calls.Carried
}

func (o *Operator) showCall(c *Call) (any, error) {
	row, err := o.seenCall(c)
	if err != nil {
		return nil, err
	}
	out := shownCall{Row: row}
	if c.Act && o.Calls.Keeps != nil && o.Calls.Keeps() {
		out = shownCall{row.Explained(), row.Carried}
	}
	return out, nil
}

// owns returns an error unless the caller may act on what belongs to a principal.
func owns(c *Call, principal string) error {
	if c.Act || c.Principal == principal && c.Principal != "" {
		return nil
	}
	return &Refusal{
		Status:  http.StatusForbidden,
		Code:    "denied",
		Message: "this belongs to another caller: to act on it, list the name of your caller in admin of the configuration file",
	}
}

// Empty reads the body of an action without arguments.
func Empty(c *Call) error { return Read(c.Body, &struct{}{}) }

func (o *Operator) cancelCall(c *Call) (any, error) {
	row, err := o.seenCall(c)
	if err == nil {
		err = owns(c, row.Principal)
	}
	if err == nil {
		err = Empty(c)
	}
	if err != nil {
		return nil, err
	}
	if !o.Calls.Cancel(row.ID) {
		return nil, &Refusal{
			Status:  http.StatusConflict,
			Code:    "conflict",
			Message: "the call has ended",
		}
	}
	return struct{}{}, nil
}

func (o *Operator) endSession(c *Call) (any, error) {
	if err := Empty(c); err != nil {
		return nil, err
	}
	seen := slices.DeleteFunc(o.Bridge.Sessions(c.Sees), func(one gateway.SessionStatus) bool { return one.ID != c.Var("id") })
	switch {
	case len(seen) == 0:
		return nil, NotFound("session of that id")
	case len(seen) > 1:
		return nil, &Refusal{
			Status:  http.StatusConflict,
			Code:    "conflict",
			Message: "several sessions are shown under that id",
		}
	}
	if err := owns(c, seen[0].Principal); err != nil {
		return nil, err
	}
	if !o.Bridge.EndSession(seen[0].ID, seen[0].Principal) {
		return nil, NotFound("session of that id")
	}
	return struct{}{}, nil
}

func (o *Operator) stopConnection(c *Call) (any, error) {
	if err := Empty(c); err != nil {
		return nil, err
	}
	if _, _, of, _ := o.Bridge.Operated(c.Var("name")); of == nil || !of.Stop(c.Var("id")) {
		return nil, NotFound("connection of that id")
	}
	return struct{}{}, nil
}

// stopIdle closes the connections that no call uses. The next call opens another connection.
func (o *Operator) stopIdle(c *Call) (any, error) {
	if err := Empty(c); err != nil {
		return nil, err
	}
	_, _, of, _ := o.Bridge.Operated(c.Var("name"))
	if of == nil {
		return nil, NotFound("server of that name")
	}
	return map[string]int{"stopped": of.StopIdle()}, nil
}

// forceFor is how long a circuit breaker stays forced, unless the operator names another time, up to forceLongest.
const (
	forceFor     = 10 * time.Minute
	forceLongest = 24 * time.Hour
)

func (o *Operator) forceBreaker(c *Call) (any, error) {
	var asked struct {
		State string `json:"state"`
		For   string `json:"for"`
	}
	if err := Read(c.Body, &asked); err != nil {
		return nil, err
	}
	wrong := func(message string) error {
		return &Refusal{
			Status:  http.StatusBadRequest,
			Code:    "body",
			Message: message,
		}
	}
	if !slices.Contains([]string{"open", "closed", "auto"}, asked.State) {
		return nil, wrong("state must be open, closed or auto")
	}
	long, err := span(asked.For, forceFor)
	if err == nil && asked.For != "" && asked.State == "auto" {
		err = wrong("for is allowed with open and closed only")
	}
	if err != nil {
		return nil, err
	}
	name := c.Var("name")
	b, _, of, _ := o.Bridge.Operated(name)
	if of == nil {
		return nil, NotFound("server of that name")
	}
	var f *breaker.Force
	if asked.State != "auto" {
		now := time.Now()
		f = &breaker.Force{
			Open:  asked.State == "open",
			By:    c.Principal,
			Since: now,
			Until: now.Add(long),
		}
	}
	if !b.Force(f) {
		return nil, &Refusal{
			Status:  http.StatusConflict,
			Code:    "conflict",
			Message: "the server has no circuit breaker: its configuration has breaker: off",
		}
	}
	return o.States.State(name)
}

// span parses the time for which an operator's order applies, from 1s to forceLongest. An empty text
// means otherwise.
func span(text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > forceLongest {
		return 0, &Refusal{
			Status:  http.StatusBadRequest,
			Code:    "body",
			Message: "for must be a time from 1s to 24h, such as 10m",
		}
	}
	return d, nil
}

// drain stops new calls to a server.
func (o *Operator) drain(c *Call) (any, error) {
	var asked struct {
		For string `json:"for"`
	}
	if err := Read(c.Body, &asked); err != nil {
		return nil, err
	}
	long, err := span(asked.For, 0)
	if err != nil {
		return nil, err
	}
	order := &drain.Order{By: c.Principal, Since: time.Now()}
	if long > 0 {
		order.Until = order.Since.Add(long)
	}
	return o.order(c.Var("name"), order)
}

// resume ends the drain of a server, which then gets new calls again.
func (o *Operator) resume(c *Call) (any, error) {
	if err := Empty(c); err != nil {
		return nil, err
	}
	return o.order(c.Var("name"), nil)
}

func (o *Operator) order(name string, order *drain.Order) (any, error) {
	_, _, _, of := o.Bridge.Operated(name)
	if of == nil {
		return nil, NotFound("server of that name")
	}
	of.Set(order)
	return o.States.State(name)
}

func (o *Operator) forgetLists(c *Call) (any, error) {
	if err := Empty(c); err != nil {
		return nil, err
	}
	_, kept, of, _ := o.Bridge.Operated(c.Var("name"))
	if of == nil {
		return nil, NotFound("server of that name")
	}
	return map[string]int{"forgotten": kept.Forget()}, nil
}

type probeResult struct {
	OK    bool    `json:"ok"`
	Took  float64 `json:"took_ms"`
	Error string  `json:"error,omitempty"`
}

func (o *Operator) probe(c *Call) (any, error) {
	if err := Empty(c); err != nil {
		return nil, err
	}
	began := time.Now()
	switch err, took := o.Bridge.Probe(c.Context, c.Var("name"), c.Principal), time.Since(began); {
	case errors.Is(err, bridge.ErrUnknownServer):
		return nil, NotFound("server of that name")
	case err != nil:
		return probeResult{false, calls.Millis(took), bridge.Brief(err)}, nil
	default:
		return probeResult{true, calls.Millis(took), ""}, nil
	}
}

// logLines is the answer with the last lines of the log.
type logLines struct {
	Lines []*logs.Line `json:"lines"` // oldest first
}

// showLog shows the last lines of the log.
func (o *Operator) showLog(c *Call) (any, error) {
	limit, err := c.Number("limit", DefaultRows, MostRows)
	if err != nil {
		return nil, err
	}
	least := slog.LevelInfo
	if text := c.Query.Get("level"); text != "" && least.UnmarshalText([]byte(text)) != nil {
		return nil, &Refusal{
			Status:  http.StatusBadRequest,
			Code:    "query",
			Message: "level must be one of DEBUG, INFO, WARN, ERROR",
		}
	}
	server := c.Query.Get("server")
	return &logLines{o.Logs.Lines(limit, func(one *logs.Line) bool {
		var level slog.Level
		return (server == "" || server == one.Server) && (level.UnmarshalText([]byte(one.Level)) != nil || level >= least)
	})}, nil
}

// Package calls stores the calls in flight and the last ones that ended, and shows passing messages, while
// observers watch. Without observers, each call costs the read of a flag, and only failures are stored.
package calls

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/health"
	"github.com/mcp-bridge/bridge/bridge/internal/observe/report"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/logs"
)

// These constants bound the stored data.
const (
	maxRecent   = 256  // calls that have ended
	maxFailures = 64   // failures of one server
	maxServers  = 1024 // servers with failures; a server whose circuit breaker refused calls counts twice
	maxUnder    = 4096 // calls in flight; a call beyond this bound appears only after its end
	maxMarks    = 32   // marks of one call
	maxText     = 200  // bytes of a name or a message
)

// linger is how long calls are stored after the last observer leaves.
const linger = time.Minute

// Row describes a call and its outcome. A published Row is immutable.
type Row struct {
	ID        string    `json:"id"`
	Server    string    `json:"server,omitempty"` // empty if no server got the call
	Method    string    `json:"method"`
	Name      string    `json:"name,omitempty"`   // the name of the tool or prompt, or the URI of the resource
	Client    string    `json:"client,omitempty"` // set only for failures, whose sessions may be gone
	Principal string    `json:"principal,omitempty"`
	Session   string    `json:"session,omitempty"` // as in logs; empty for a stateless client
	Revision  string    `json:"revision,omitempty"`
	Speaks    string    `json:"speaks,omitempty"` // the revision of the server
	Began     time.Time `json:"began"`
	// Took, Outcome, Code, Error and Out are absent while the call is in flight.
	Took    *float64 `json:"took_ms,omitempty"`
	Outcome string   `json:"outcome,omitempty"`
	Code    int64    `json:"code,omitempty"`
	Error   string   `json:"error,omitempty"`
	In      int      `json:"bytes_in"`
	Out     int      `json:"bytes_out,omitempty"`
	Marks   []Mark   `json:"marks,omitempty"`

	// Carried holds the arguments and the result; nil unless they are stored.
	Carried *Carried `json:"-"`
	// Said is the first line of the text with which a tool failed. It belongs to the result: it is empty unless the
	// result is stored, and only for observers who may see the result.
	Said string `json:"-"`
}

// Carried holds the arguments and the result of a call: masked JSON, cut if long.
type Carried struct {
	Arguments string `json:"arguments,omitempty"`
	Result    string `json:"result,omitempty"`
	// Cut names the texts that are incomplete: arguments, result.
	Cut []string `json:"cut,omitempty"`
}

// maxCarried bounds the arguments, and the result, in bytes. Texts longer than maxLooked are not stored.
const (
	maxCarried = 4 << 10
	maxLooked  = 64 << 10
)

// Mark is an event during a call.
type Mark struct {
	At   float64 `json:"at_ms"` // milliseconds since the call began
	What string  `json:"what"`  // progress, asked, answered
	Text string  `json:"text,omitempty"`
}

// Watcher receives the events of calls. It must not block, and must not hold a lock that calls wait for.
type Watcher interface {
	Begun(r *Row)
	Marked(r *Row, m Mark)
	Ended(r *Row)
}

// Calls holds the calls of all servers. Its methods may be called concurrently.
type Calls struct {
	// Traffic receives the messages of clients. An observer of messages also observes calls.
	Traffic *Traffic
	// Keeps reports whether arguments and results are stored during observation; nil means no. Keeps is set before
	// the first call.
	Keeps func() bool

	on       atomic.Bool
	watchers atomic.Pointer[[]Watcher]

	mu       sync.Mutex // guards the rest
	holds    int        // observers
	timer    *time.Timer
	since    time.Time // when the observation began
	before   int64     // calls that were in flight then
	carriers carriers
	last     uint64
	under    map[key]*call
	recent   logs.Ring[*Row]
	failures map[failureKey]*logs.Ring[*Row]
}

// failureKey selects a list of failures: each server has one for real failures, and one for refusals by its open circuit
// breaker, so that refusals do not push their causes out.
type failureKey struct {
	server  string
	refused bool
}

// carriers counts the observers with access to arguments and results.
type carriers struct {
	on    atomic.Bool // arguments and results are stored if Keeps allows it; read without the lock
	looks int
	kept  bool        // some rows have arguments or results
	timer *time.Timer // until fade, after the last of these observers has left
}

// key identifies a call. A request for the lists of several servers has a key for each server.
type key struct {
	of     bridge.Call
	server string
}

// New returns a Calls without observers.
func New() *Calls {
	return &Calls{
		Traffic:  &Traffic{},
		under:    map[key]*call{},
		failures: map[failureKey]*logs.Ring[*Row]{},
		recent:   logs.NewRing[*Row](maxRecent),
	}
}

// Look observes calls until done is called, and a minute longer. w receives the events of the calls; it is nil if the
// observer only queries them. now returns the number of calls in flight. carried means that the observer may see
// arguments and results: without such an observer, they are not stored.
func (c *Calls) Look(w Watcher, carried bool, now func() (under int, all uint64)) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds++
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if !c.on.Load() {
		under, _ := now()
		c.since, c.before = time.Now(), int64(under)
		c.on.Store(true)
	}
	if carried {
		c.carriers.looks++
		c.carriers.on.Store(true)
		if c.carriers.timer != nil {
			c.carriers.timer.Stop()
			c.carriers.timer = nil
		}
	}
	c.watch(func(all []Watcher) []Watcher {
		if w == nil {
			return all
		}
		return append(all, w)
	})
	return sync.OnceFunc(func() { c.leave(w, carried) })
}

// watch replaces the watchers by the result of change, which gets a copy of them. The caller holds c.mu.
func (c *Calls) watch(change func([]Watcher) []Watcher) {
	var all []Watcher
	if now := c.watchers.Load(); now != nil {
		all = slices.Clone(*now)
	}
	all = change(all)
	c.watchers.Store(&all)
}

func (c *Calls) leave(w Watcher, carried bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch(func(all []Watcher) []Watcher { return slices.DeleteFunc(all, func(o Watcher) bool { return o == w }) })
	if carried {
		if c.carriers.looks--; c.carriers.looks == 0 {
			c.carriers.timer = time.AfterFunc(linger, c.fade)
		}
	}
	if c.holds--; c.holds == 0 {
		c.timer = time.AfterFunc(linger, c.off)
	}
}

// fade stops storing arguments and results, unless an observer may see them.
func (c *Calls) fade() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.carriers.looks == 0 {
		c.carriers.on.Store(false)
		c.empty()
	}
}

// empty removes the stored arguments and results. The caller holds c.mu.
func (c *Calls) empty() {
	if !c.carriers.kept {
		return
	}
	c.carriers.kept = false
	c.recent = emptied(c.recent, maxRecent)
	for f, of := range c.failures {
		r := emptied(*of, maxFailures)
		c.failures[f] = &r
	}
}

// emptied returns copies of the rows without arguments and results, because others may hold the rows.
func emptied(rows logs.Ring[*Row], most int) logs.Ring[*Row] {
	var all []*Row
	rows.Newest(func(r *Row) bool { all = append(all, r.Bare()); return true })
	out := logs.NewRing[*Row](most)
	for _, r := range slices.Backward(all) {
		out.Add(r)
	}
	return out
}

// Bare returns the row without arguments and results.
func (r *Row) Bare() *Row {
	if r.Carried == nil && r.Said == "" {
		return r
	}
	bare := *r
	bare.Carried, bare.Said = nil, ""
	return &bare
}

// Explained returns the row with Said as its error, for observers who may see results.
func (r *Row) Explained() *Row {
	if r.Said == "" {
		return r
	}
	out := *r
	out.Error = r.Said
	return &out
}

// off stops the observation, and removes the stored calls but not the failures, unless there is an observer.
func (c *Calls) off() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds > 0 {
		return
	}
	c.on.Store(false)
	c.carriers.on.Store(false)
	c.empty()
	for _, one := range c.under {
		one.ended = true
	}
	c.under, c.recent, c.timer, c.since = map[key]*call{}, logs.NewRing[*Row](maxRecent), nil, time.Time{}
}

// Close stops the observation and its timers.
func (c *Calls) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, timer := range []*time.Timer{c.timer, c.carriers.timer} {
		if timer != nil {
			timer.Stop()
		}
	}
	c.on.Store(false)
}

// Wrap returns an Upstream whose calls are observed. A nil Calls observes nothing.
func (c *Calls) Wrap(server string, up bridge.Upstream) bridge.Upstream {
	if c == nil {
		return up
	}
	return &watched{up, c, server}
}

type watched struct {
	bridge.Upstream
	c      *Calls
	server string
}

func (w *watched) Call(ctx context.Context, r *bridge.Request) (*jsonrpc.Message, error) {
	if !w.c.on.Load() || r.Call == nil {
		return w.Upstream.Call(ctx, r)
	}
	one, ctx := w.c.begin(ctx, w.server, r)
	if one == nil {
		return w.Upstream.Call(ctx, r)
	}
	defer one.left()
	one.exchange = w.c.Traffic.Asked(w.server, one.row.Session, one.row.Principal, r.Message)
	m, err := w.Upstream.Call(ctx, &one.request)
	if err != nil {
		one.exchange.Failed(errorText(err))
	} else {
		one.exchange.Answered(m)
	}
	return m, err
}

// Notify passes on a notification of a client.
func (w *watched) Notify(ctx context.Context, r *bridge.Request) error {
	if w.c.on.Load() && r.From != nil {
		w.c.Passed(w.server, "", r.From, true, nil, r.Message)
	}
	return w.Upstream.Notify(ctx, r)
}

// Passed shows a message between a client and the bridge that belongs to none of the client's requests. id replaces
// the id of the message.
func (c *Calls) Passed(server, session string, from *bridge.Caller, toServer bool, id []byte, m *jsonrpc.Message) {
	if c != nil && c.on.Load() {
		c.Traffic.Pass(Where{
			Side:      Client,
			Server:    server,
			Principal: from.Principal,
			Session:   session,
		}, toServer, id, m, nil)
	}
}

// call is a call in flight, and its Client.
type call struct {
	bridge.Client
	c       *Calls
	of      bridge.Call
	row     Row    // without marks
	marks   []Mark // guarded by c.mu
	ended   bool   // the call is no longer in c.under; guarded by c.mu
	request bridge.Request
	cancel  context.CancelCauseFunc
	done    context.CancelCauseFunc // of the call's own context; nil if the call has none

	exchange *Exchange // nil without observers of messages
}

// begin adds a call. begin returns nil if there are maxUnder calls, or no observers any more.
func (c *Calls) begin(ctx context.Context, server string, r *bridge.Request) (*call, context.Context) {
	one := &call{
		Client:  r.Back,
		c:       c,
		of:      r.Call,
		request: *r,
	}
	one.row = Row{
		Server: server,
		Method: clip(r.Method),
		Name:   clip(r.GivenName()),
		Began:  time.Now(),
		In:     r.Len(),
	}
	if a, ok := r.Call.(*report.Arrival); ok {
		one.row.Session = a.Session()
		if !a.Part(r.Method) {
			one.cancel = a.Cancel // a context of its own costs more than all else here
		}
	}
	if r.From != nil {
		one.row.Principal, one.row.Revision = r.From.Principal, r.From.Revision
	}
	if r.Back != nil {
		one.request.Back = one
	}
	c.mu.Lock()
	if len(c.under) >= maxUnder || !c.on.Load() {
		c.mu.Unlock()
		return nil, ctx
	}
	c.last++
	one.row.ID = strconv.FormatUint(c.last, 10)
	if one.cancel == nil { // before Cancel may call it
		ctx, one.done = context.WithCancelCause(ctx)
		one.cancel = one.done
	}
	c.under[one.key()] = one
	c.mu.Unlock()
	c.notify(func(w Watcher) { w.Begun(&one.row) })
	return one, ctx
}

// notify calls f with each watcher.
func (c *Calls) notify(f func(Watcher)) {
	if all := c.watchers.Load(); all != nil {
		for _, w := range *all {
			f(w)
		}
	}
}

func (c *call) key() key { return key{c.of, c.row.Server} }

// end removes the call from the calls in flight. The caller holds c.c.mu.
func (c *call) end() {
	c.ended = true
	delete(c.c.under, c.key())
}

// left ends a call without a report, because its client had left before.
func (c *call) left() {
	if c.done != nil {
		c.done(nil)
	}
	c.c.mu.Lock()
	ended, marks := c.ended, c.marks
	if !ended {
		c.end()
	}
	c.c.mu.Unlock()
	if ended {
		return
	}
	row := c.row
	row.Outcome, row.Marks = bridge.Cancelled.String(), marks
	row.took(time.Since(row.Began))
	c.c.notify(func(w Watcher) { w.Ended(&row) })
}

func (r *Row) took(d time.Duration) {
	ms := Millis(d)
	r.Took = &ms
}

// Millis returns a duration in milliseconds, as in the JSON of this package.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// mark adds a mark to the call.
func (c *call) mark(what, text string) {
	m := Mark{Millis(time.Since(c.row.Began)), what, clip(text)}
	c.c.mu.Lock()
	ended := c.ended
	if !ended && len(c.marks) < maxMarks {
		c.marks = append(c.marks, m) // readers hold the shorter slice
	}
	c.c.mu.Unlock()
	if !ended {
		c.c.notify(func(w Watcher) { w.Marked(&c.row, m) })
	}
}

// Notify passes on a notification about the call.
func (c *call) Notify(m *jsonrpc.Message) {
	if m.Method == "notifications/progress" {
		p := gjson.GetManyBytes(m.Params, "progress", "total")
		text := p[0].Raw
		if p[1].Exists() {
			text += "/" + p[1].Raw
		}
		c.mark("progress", text)
	}
	c.exchange.Notified(m)
	c.Client.Notify(m)
}

// Ask passes on a question about the call.
func (c *call) Ask(m *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	c.mark("asked", m.Method)
	return c.Client.Ask(m, func(m *jsonrpc.Message) {
		c.mark("answered", "")
		reply(m)
	})
}

// Take stores the report of a request: during observation every report, at other times only reports of failures.
func (c *Calls) Take(r *report.Report) {
	failed := r.Outcome != bridge.Answered && r.Outcome != bridge.Cancelled
	on := c.on.Load()
	if !on && !failed {
		return
	}
	row := &Row{
		Server:    r.Server,
		Principal: r.Principal,
		Session:   r.Session,
		Revision:  r.Revision,
		Speaks:    r.Speaks,
		Began:     r.Began,
		Outcome:   r.Outcome.String(),
		Code:      r.Code,
		In:        r.Request.Len(),
	}
	if failed && r.From != nil {
		if name := health.Client(r.From); name != health.Unnamed {
			row.Client = name
		}
	}
	row.took(r.Took)
	if r.Answer != nil {
		row.Out = r.Answer.Len()
	}
	switch {
	case r.Err != nil:
		row.Error = clip(errorText(r.Err))
	case r.Answer != nil && r.Answer.Error != nil:
		row.Error = clip(gjson.GetBytes(r.Answer.Error, "message").String())
	}
	keeps := c.Keeps != nil && c.Keeps()
	if on && keeps && c.carriers.on.Load() {
		row.Carried = c.carried(r)
		if r.Outcome == bridge.ToolFailed {
			row.Said = firstLine(gjson.Get(row.Carried.Result, "content.#.text").Array())
		}
	}
	c.mu.Lock()
	switch {
	case !keeps:
		c.empty() // the configuration no longer allows arguments and results
	case row.Carried == nil:
	case c.carriers.on.Load():
		c.carriers.kept = true
	default: // the observation has ended since
		row.Carried, row.Said = nil, ""
	}
	if one := c.under[key{r.Call, r.Server}]; one != nil {
		row.ID, row.Method, row.Name, row.Marks = one.row.ID, one.row.Method, one.row.Name, one.marks
		one.end()
	} else {
		c.last++
		row.ID, row.Method, row.Name = strconv.FormatUint(c.last, 10), clip(r.Request.Method), clip(r.Request.GivenName())
	}
	if on {
		c.recent.Add(row)
	}
	if failed {
		c.fail(row)
	}
	c.mu.Unlock()
	if on {
		light := *row
		light.Carried = nil // a slow reader holds no more memory than is counted
		c.notify(func(w Watcher) { w.Ended(&light) })
	}
}

// carried returns the arguments and the result of a call.
func (c *Calls) carried(r *report.Report) *Carried {
	out := &Carried{}
	shown := func(what string, raw []byte) string {
		if len(raw) == 0 {
			return ""
		}
		var text []byte
		whole := false
		if len(raw) <= maxLooked {
			text, whole = c.Traffic.Mask(raw, maxCarried)
		}
		if !whole {
			out.Cut = append(out.Cut, what)
		}
		return string(text)
	}
	out.Arguments = shown("arguments", []byte(gjson.GetBytes(r.Request.Params, "arguments").Raw))
	if r.Answer != nil && r.Answer.Error == nil {
		out.Result = shown("result", r.Answer.Whole())
	}
	return out
}

// firstLine returns the first line of texts that is not empty.
func firstLine(texts []gjson.Result) string {
	for _, text := range texts {
		for line := range strings.Lines(text.String()) {
			if line = strings.TrimSpace(line); line != "" {
				return clip(line)
			}
		}
	}
	return ""
}

// refused reports whether an open circuit breaker refused the call.
func (r *Row) refused() bool { return r.Outcome == bridge.CircuitOpen.String() }

// fail stores a failure. The caller holds c.mu.
func (c *Calls) fail(row *Row) {
	f := failureKey{row.Server, row.refused()}
	of := c.failures[f]
	if of == nil {
		for old := range c.failures {
			if len(c.failures) < maxServers {
				break
			}
			delete(c.failures, old) // an arbitrary list makes room
		}
		r := logs.NewRing[*Row](maxFailures)
		of = &r
		c.failures[f] = of
	}
	of.Add(row)
}

// errorText returns the text of an error as clients get it: observers see no more.
func errorText(err error) string {
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		return e.Told()
	}
	return bridge.Brief(err)
}

// clip returns the first maxText bytes of a text.
func clip(s string) string { return string([]byte(s[:min(len(s), maxText)])) } // a copy, because the text belongs to the message

// Shown holds the calls that an observer may see.
type Shown struct {
	// Since is the time since which Recent has all calls: the start of the observation, or later if there were more
	// calls than are stored or requested. Calls in flight at the start are not shown; Before is their number.
	Since    *time.Time `json:"since,omitempty"`
	Before   int64      `json:"before,omitempty"`
	Under    []*Row     `json:"under_way"`
	Recent   []*Row     `json:"recent"`   // the newest first
	Failures []*Row     `json:"failures"` // the newest first, also from before the observation
}

// held is a snapshot of all calls, so that calls do not wait while the snapshot is searched.
type held struct {
	under            []now
	recent, failures []*Row // newest first; failures are in this order only within each failureKey
	since            *time.Time
	before           int64
}

// now is a call in flight with its marks so far.
type now struct {
	*call
	marks []Mark
}

// shown returns an immutable row.
func (n now) shown() *Row {
	row := n.row
	row.Marks = n.marks
	return &row
}

func (c *Calls) hold() (all held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on.Load() {
		since := c.since
		all.since, all.before = &since, c.before
	}
	all.under, all.failures = make([]now, 0, len(c.under)), make([]*Row, 0, maxFailures*len(c.failures))
	for _, one := range c.under {
		all.under = append(all.under, now{one, one.marks})
	}
	c.recent.Newest(func(r *Row) bool { all.recent = append(all.recent, r); return true })
	for _, of := range c.failures {
		of.Newest(func(r *Row) bool { all.failures = append(all.failures, r); return true })
	}
	return all
}

// Show returns the calls that fits accepts, up to most of each kind. fits gets rows in flight without their marks.
func (c *Calls) Show(most int, fits func(*Row) bool) *Shown {
	all := c.hold()
	out := &Shown{
		Since:    all.since,
		Before:   all.before,
		Under:    []*Row{},
		Recent:   []*Row{},
		Failures: []*Row{},
	}
	for _, one := range all.under {
		if fits(&one.row) {
			out.Under = append(out.Under, one.shown())
		}
	}
	seen := 0
	for _, r := range all.recent {
		if len(out.Recent) == most {
			break
		}
		if seen++; fits(r) {
			out.Recent = append(out.Recent, r)
		}
	}
	if out.Since != nil && (seen == maxRecent || seen < len(all.recent)) { // older calls of the observation are left out
		out.Since = &all.recent[seen-1].Began
	}
	newest := func(r, b *Row) int {
		return cmp.Or(b.Began.Compare(r.Began), cmp.Compare(len(b.ID), len(r.ID)), cmp.Compare(b.ID, r.ID))
	}
	slices.SortFunc(out.Under, newest)
	slices.SortFunc(all.failures, newest)
	var refused, others int // each counts up to most
	for _, r := range all.failures {
		n := &others
		if r.refused() {
			n = &refused
		}
		if *n < most && fits(r) {
			*n++
			out.Failures = append(out.Failures, r)
		}
	}
	out.Under = out.Under[:min(len(out.Under), most)]
	return out
}

// Find returns the call with that id, in flight or stored, or nil.
func (c *Calls) Find(id string) *Row {
	all := c.hold()
	for _, one := range all.under {
		if one.row.ID == id {
			return one.shown()
		}
	}
	for _, rows := range [][]*Row{all.recent, all.failures} {
		if i := slices.IndexFunc(rows, func(r *Row) bool { return r.ID == id }); i >= 0 {
			return rows[i]
		}
	}
	return nil
}

// Cancel ends the call in flight of that id. The client gets an error that names an operator as the cause. Cancel
// reports false if no such call is in flight.
func (c *Calls) Cancel(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.under {
		if one.row.ID == id {
			one.cancel(&bridge.Error{
				Server: one.row.Server,
				Kind:   bridge.ErrCancelled,
				Public: "an operator cancelled the call",
			})
			return true
		}
	}
	return false
}

package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/internal/observe/calls"
	"github.com/mcp-bridge/bridge/internal/httpio"
	"github.com/mcp-bridge/bridge/internal/logs"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// These are the intervals at which a stream sends what the comments name.
const (
	flushEvery    = 100 * time.Millisecond // events
	crowdedEvery  = time.Second            // events, after some were dropped: nobody reads that many
	stateEvery    = 500 * time.Millisecond // the state of servers, if it changed
	processEvery  = 5 * time.Second        // the state of the process, in any case
	sessionsEvery = 2 * time.Second        // sessions; at the same time the stream checks that the caller still has its rights
)

// detachedFor is how long a stream without a reader can be resumed. maxResend and maxSent bound the events that it
// then repeats.
const (
	detachedFor = time.Minute
	maxResend   = 128
	maxSent     = 64 << 10 // bytes
)

// topics are the topics of events.
var topics = []string{"servers", "calls", "sessions", "traffic", "log"}

// Events serves streams of events.
type Events struct {
	*Operator

	streams Streams

	mu       sync.Mutex         // guards the rest
	detached map[string]*stream // streams without a reader, which can be resumed, by key
	closed   bool
}

// Overview is the state of the bridge at one time.
type Overview interface {
	// Since returns the changes since an earlier overview, or nil if nothing changed. whole means that Since returns
	// the state of the process in any case.
	Since(was Overview, whole bool) any
}

// Routes returns the route of the streams.
func (e *Events) Routes() []Route {
	return []Route{{
		Method: "GET",
		Path:   "events",
		Right:  Own,
		Stream: e.serve,
	}}
}

// snapshot is the event with the whole state.
type snapshot struct {
	Status   Overview     `json:"status,omitempty"`
	Calls    *calls.Shown `json:"calls,omitempty"`
	Sessions *SessionRows `json:"sessions,omitempty"`
	Lines    []*logs.Line `json:"lines,omitempty"`
}

// serve streams events until the caller leaves or loses its rights.
func (e *Events) serve(w http.ResponseWriter, r *http.Request, c *Call) {
	wants, err := e.parse(c)
	if err != nil {
		fail(w, err)
		return
	}
	leave, ok := e.streams.Acquire(&c.Caller, e.States.Config().ConsoleStreams, !e.States.Keyed())
	if !ok {
		Refuse(w, http.StatusTooManyRequests, "too_many_streams", "too many pages are open: close one, or raise console_streams in the configuration file")
		return
	}
	defer leave()
	s, last := e.find(r.Header.Get("Last-Event-ID"), wants, &c.Caller)
	if s == nil {
		s = e.begin(wants, c)
	}
	out, err := httpio.OpenWriter(w, r)
	if err != nil {
		s.stop()
		return // the client left, or the connection cannot stream
	}
	defer out.Close()
	s.c, s.out = &c.Caller, out
	if last > 0 {
		err = s.resume(last)
	} else {
		err = s.snapshot()
	}
	if err == nil && s.run(r.Context()) {
		s.stop()
	} else {
		e.detach(s)
	}
}

// streamQuery is a client's request for a stream.
type streamQuery struct {
	topics          string // sorted
	server, session string
	payloads        bool
}

func (s streamQuery) has(topic string) bool {
	return slices.Contains(strings.Split(s.topics, ","), topic)
}

// parse reads a client's request for a stream.
func (e *Events) parse(c *Call) (s streamQuery, err error) {
	all := strings.Split(c.Query.Get("topics"), ",")
	for _, topic := range all {
		if !slices.Contains(topics, topic) {
			return s, &Refusal{http.StatusBadRequest, "query", "topics must be some of " + strings.Join(topics, ",")}
		}
	}
	slices.Sort(all)
	s = streamQuery{strings.Join(slices.Compact(all), ","), c.Query.Get("server"), c.Query.Get("session"), c.Query.Get("payloads") == "true"}
	switch denied := func(what, key string) error {
		return &Refusal{http.StatusForbidden, "denied", "this caller may not see " + what + ": list its name in " + key + " of the configuration file"}
	}; {
	case s.has("log") && !c.Act:
		return s, denied("the log", "admin")
	case s.has("traffic") && !c.Look:
		return s, denied("messages", "viewers")
	case s.payloads && !c.Act:
		return s, denied("the payloads of messages", "admin")
	case s.payloads && !e.Calls.Keeps():
		return s, &Refusal{http.StatusConflict, "conflict", "payloads of messages are not shown: set console: payloads in the configuration file"}
	}
	return s, nil
}

// stream is one stream of events. One goroutine uses it at a time; its feed may be filled concurrently.
type stream struct {
	e      *Events
	key    string // begins the ids of the stream's events
	query  streamQuery
	c      *Caller
	viewer *Viewer
	out    *httpio.Writer
	ends   []func()
	timer  *time.Timer // calls forget when the stream had no reader for detachedFor; guarded by e.mu
	since  time.Time   // when the stream lost its reader; guarded by e.mu

	overview                  Overview
	sessions                  *SessionRows
	process, session, written time.Time // when the process and the sessions were last read, and when anything was last written

	number int            // of the last event
	sent   []httpio.Event // the last events, for a reader that resumes
	bytes  int            // of sent
}

// begin makes a stream and subscribes it to its topics.
func (e *Events) begin(wants streamQuery, c *Call) *stream {
	v := &Viewer{
		Feed:     NewFeed(),
		Caller:   &c.Caller,
		Server:   wants.server,
		Session:  wants.session,
		Calls:    e.Calls,
		Payloads: wants.payloads,
	}
	s := &stream{
		e:      e,
		key:    rand.Text(),
		query:  wants,
		viewer: v,
	}
	switch {
	case wants.has("calls"):
		s.ends = append(s.ends, e.Calls.Look(v, c.Act, e.Bridge.Activity))
	case wants.has("traffic"):
		s.ends = append(s.ends, e.Calls.Look(nil, false, e.Bridge.Activity)) // without it, messages of clients are not recorded
	}
	if wants.has("traffic") {
		s.ends = append(s.ends, e.Calls.Traffic.Look(v))
	}
	if wants.has("log") {
		s.ends = append(s.ends, e.Logs.Watch(v.Line))
	}
	return s
}

// stop unsubscribes a stream.
func (s *stream) stop() {
	for _, end := range s.ends {
		end()
	}
	s.ends = nil
}

// detach stores a stream that lost its reader for detachedFor, so that a reader can resume the stream. If there are
// too many, the stream replaces the oldest of the same caller: most readers do not come back, since they opened
// another page.
func (e *Events) detach(s *stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var oldest *stream
	own := 0
	for _, o := range e.detached {
		if o.c.Principal != s.c.Principal {
			continue
		}
		if own++; oldest == nil || o.since.Before(oldest.since) {
			oldest = o
		}
	}
	most := e.States.Config().ConsoleStreams                                     // the same limit as for open streams
	full := len(e.detached) >= most || e.States.Keyed() && own >= max(1, most/2) // each page that an operator leaves adds a stream
	if full && oldest != nil {
		e.forget(oldest)
	}
	if e.closed || full && oldest == nil {
		s.stop()
		return
	}
	if e.detached == nil {
		e.detached = map[string]*stream{}
	}
	e.detached[s.key], s.since = s, time.Now()
	s.timer = time.AfterFunc(detachedFor, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.detached[s.key] == s {
			e.forget(s)
		}
	})
}

// forget ends a stream that has no reader. The caller holds e.mu.
func (e *Events) forget(s *stream) {
	s.timer.Stop()
	delete(e.detached, s.key)
	s.stop()
}

// find returns the caller's stream that sent an event, and the number of the event. The stream is nil if it was
// opened with another query or with other rights.
func (e *Events) find(id string, wants streamQuery, c *Caller) (s *stream, last int) {
	key, number, _ := strings.Cut(id, ".")
	n, err := strconv.Atoi(number)
	e.mu.Lock()
	defer e.mu.Unlock()
	s = e.detached[key]
	if err != nil || s == nil || n < 1 || n > s.number || s.query != wants || s.c.Principal != c.Principal || s.c.Look != c.Look || s.c.Act != c.Act {
		return nil, 0
	}
	s.timer.Stop()
	delete(e.detached, key)
	return s, n
}

// Close ends the streams that have no reader.
func (e *Events) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for _, s := range e.detached {
		e.forget(s)
	}
}

// run writes events until the reader is lost. run reports true if it ended the stream itself.
func (s *stream) run(ctx context.Context) (ended bool) {
	tick, rest := time.NewTicker(stateEvery), time.NewTimer(0)
	defer tick.Stop()
	defer rest.Stop()
	wake := s.viewer.Wake() // nil while the stream rests
	for {
		var err error
		select {
		case <-ctx.Done():
			return false
		case <-rest.C:
			wake = s.viewer.Wake()
		case <-wake:
			var dropped int
			dropped, err = s.flush()
			wake = nil
			if rest.Reset(flushEvery); dropped > 0 {
				rest.Reset(crowdedEvery)
			}
		case now := <-tick.C:
			var more bool
			if more, err = s.poll(now); !more {
				return true
			}
		}
		if err != nil {
			return false
		}
	}
}

// send writes an event.
func (s *stream) send(kind string, data any) error {
	one := s.record(kind, data)
	s.written = time.Now()
	return s.out.Send(one)
}

// record numbers an event, and stores it for a reader that resumes.
func (s *stream) record(kind string, data any) httpio.Event {
	text, err := json.Marshal(data)
	if err != nil {
		text = []byte("null") // every event has a JSON form
	}
	s.number++
	one := httpio.Event{
		ID:   s.key + "." + strconv.Itoa(s.number),
		Type: kind,
		Data: sanitize.JSON(text),
	}
	s.sent, s.bytes = append(s.sent, one), s.bytes+len(one.Data)
	return one
}

// trim removes the oldest stored events beyond maxResend and maxSent. trim keeps the newest event, however large.
func (s *stream) trim() {
	old := 0
	for ; len(s.sent)-old > maxResend || s.bytes > maxSent && len(s.sent)-old > 1; old++ {
		s.bytes -= len(s.sent[old].Data)
	}
	s.sent = slices.Delete(s.sent, 0, old)
}

// resume resumes a stream after the event of that number. If later events are not stored any more, resume writes the
// whole state instead.
func (s *stream) resume(last int) error {
	left := s.sent[max(0, len(s.sent)-(s.number-last)):]
	missed := s.number - last - len(left)
	left = slices.Clone(left)
	if err := s.send("resumed", map[string]int{"missed": missed}); err != nil {
		return err
	}
	if missed > 0 {
		return s.snapshot()
	}
	for _, one := range left {
		if err := s.out.Send(one); err != nil {
			return err
		}
	}
	_, err := s.flush()
	return err
}

// snapshot writes the whole state.
func (s *stream) snapshot() error {
	var all snapshot
	now := time.Now()
	if s.query.has("servers") {
		s.overview, s.process = s.e.States.Overview(s.c), now
		all.Status = s.overview
	}
	if s.query.has("calls") {
		all.Calls = s.e.Calls.Show(DefaultRows, func(r *calls.Row) bool { return s.c.Sees(r.Principal) })
		explain(s.e.Calls, s.c.Act, all.Calls)
		for _, r := range all.Calls.Under {
			s.viewer.Shown(r.ID)
		}
	}
	if s.query.has("sessions") {
		s.sessions = s.e.Sessions(s.c, MostRows)
		all.Sessions = s.sessions
	}
	if s.query.has("log") {
		all.Lines = s.e.Logs.Lines(MostRows, func(*logs.Line) bool { return true })
	}
	s.session = now
	if err := s.send("snapshot", all); err != nil {
		return err
	}
	return s.out.Flush()
}

// flush writes the events of the feed, and returns how many were dropped. After a failed write, flush still numbers
// the other events: a reader that resumes gets them, or the number of events that it missed.
func (s *stream) flush() (dropped int, err error) {
	defer s.trim() // once for all events
	events, dropped := s.viewer.Take()
	if dropped > 0 {
		events = append(events, Event{Type: "dropped", Data: map[string]int{"count": dropped}})
	}
	for _, one := range events {
		if err != nil {
			s.record(one.Type, one.Data)
		} else {
			err = s.send(one.Type, one.Data)
		}
	}
	if err != nil {
		return dropped, err
	}
	return dropped, s.out.Flush()
}

// poll writes the changes since the last poll. more is false if poll ended the stream.
func (s *stream) poll(now time.Time) (more bool, err error) {
	defer s.trim()
	if s.e.Bridge.Draining() {
		return false, s.bye("stopping")
	}
	if now.Sub(s.session) >= sessionsEvery {
		s.session = now
		if s.c.Valid != nil && !s.c.Valid() {
			return false, s.bye("signed_out")
		}
		if s.query.has("sessions") {
			if all := s.e.Sessions(s.c, MostRows); !reflect.DeepEqual(all, s.sessions) {
				s.sessions = all
				err = s.send("sessions", all)
			}
		}
	}
	if s.query.has("servers") && err == nil {
		err = s.servers(now)
	}
	if err == nil && now.Sub(s.written) >= s.e.States.Config().Heartbeat {
		s.written = now
		return true, s.out.Beat()
	}
	if err != nil {
		return true, err
	}
	return true, s.out.Flush()
}

// bye writes the last event of a stream.
func (s *stream) bye(reason string) error {
	if err := s.send("bye", map[string]string{"reason": reason}); err != nil {
		return err
	}
	return s.out.Flush()
}

// servers writes changes of the state of servers.
func (s *stream) servers(now time.Time) error {
	all := s.e.States.Overview(s.c)
	change := all.Since(s.overview, now.Sub(s.process) >= processEvery)
	s.overview = all
	if change == nil {
		return nil
	}
	s.process = now
	return s.send("status", change)
}

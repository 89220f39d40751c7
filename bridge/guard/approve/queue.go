package approve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// Outcome is what became of a call that needed approval.
type Outcome string

// The outcomes. Only the first three let the call pass.
const (
	Once       Outcome = "once"       // allowed
	ForSession Outcome = "session"    // allowed, as are later calls of the tool in the session
	Remembered Outcome = "remembered" // allowed earlier, with ForSession
	Denied     Outcome = "no"
	TimedOut   Outcome = "timeout"   // nobody decided in time
	Cancelled  Outcome = "cancelled" // the call ended before a decision
	Unasked    Outcome = "unasked"   // nobody could be asked
)

// Decision records what became of a call that needed approval.
type Decision struct {
	At        time.Time
	Server    string
	Tool      string // the server's own name
	Principal string // of the call
	Session   string // short name of the call's session; empty without one
	Outcome   Outcome
	Asked     string // AskClient or AskConsole; empty if nobody was asked
	Operator  string // principal of the operator who decided; empty for others
}

// Recorder gets each Decision. Its method must not block.
type Recorder interface{ Decided(d Decision) }

// Question is a call that waits for an operator.
type Question struct {
	ID        string
	Server    string
	Tool      string // the server's own name
	Principal string
	Session   string // short name; empty without one
	Client    []byte // clientInfo of the client, raw JSON; nil if unknown
	Arguments []byte // raw JSON, without the values that the configuration hides; nil for none
	Since     time.Time
	Until     time.Time // then the answer is no
	Remembers bool      // the operator may choose ForSession
}

// Queue holds the calls of all servers that wait for an operator. It is safe for concurrent use.
type Queue struct {
	to      Recorder
	mu      sync.Mutex // guards waiting
	waiting map[string]*waiting
}

type waiting struct {
	Question
	decided chan Decision // gets one
}

// These constants bound the waiting calls.
const (
	maxWaiting      = 256
	maxPerPrincipal = 64
)

// NewQueue returns an empty Queue. to gets all decisions, not only those of operators; it may be nil.
func NewQueue(to Recorder) *Queue { return &Queue{to: to, waiting: map[string]*waiting{}} }

// Waiting returns the waiting calls, the oldest first.
func (q *Queue) Waiting() []Question {
	q.mu.Lock()
	all := make([]Question, 0, len(q.waiting))
	for _, w := range q.waiting {
		all = append(all, w.Question)
	}
	q.mu.Unlock()
	slices.SortFunc(all, func(a, b Question) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// ErrDecided is the error of Decide if no call of that id waits.
var ErrDecided = errors.New("no call waits for approval under that id: it was decided, or has ended")

// Decide lets the call go on with that outcome: Once, ForSession or Denied. operator is who decided.
func (q *Queue) Decide(id string, o Outcome, operator string) error {
	w, err := q.take(id, o)
	if err != nil {
		return err
	}
	w.decided <- Decision{Asked: AskConsole, Outcome: o, Operator: operator}
	return nil
}

// take removes a call that is to be decided with that outcome.
func (q *Queue) take(id string, o Outcome) (*waiting, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.waiting[id]
	switch {
	case w == nil:
		return nil, ErrDecided
	case o == ForSession && !w.Remembers:
		return nil, fmt.Errorf("the call can be allowed once only: it has no session, or its rule does not have remember: %s", RememberSession)
	}
	delete(q.waiting, id)
	return w, nil
}

// add adds a waiting call. If too many wait, add returns the bound; otherwise 0.
func (q *Queue) add(w *waiting) (most int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	same := 0
	for _, other := range q.waiting {
		if other.Principal == w.Principal {
			same++
		}
	}
	switch {
	case len(q.waiting) >= maxWaiting:
		return maxWaiting
	case w.Principal != "" && same >= maxPerPrincipal:
		return maxPerPrincipal
	}
	q.waiting[w.ID] = w
	return 0
}

// askConsole waits until an operator decides.
func (c *call) askConsole(ctx context.Context) (*jsonrpc.Message, error) {
	q, now := c.a.s.Queue, time.Now()
	w := &waiting{
		Question: Question{
			ID:        rand.Text(),
			Server:    c.a.s.Name,
			Tool:      c.r.Name(),
			Principal: c.r.From.Principal,
			Session:   c.session(),
			Client:    c.r.From.Meta().ClientInfo,
			Arguments: slices.Clone(c.shown()),
			Since:     now,
			Until:     now.Add(c.rule.Timeout),
			Remembers: c.remembers(),
		},
		decided: make(chan Decision, 1),
	}
	if most := q.add(w); most > 0 {
		c.record(Decision{Outcome: Unasked})
		return c.refuse(bridge.OverLimit("too many calls wait for an operator", most)), nil
	}
	late := time.NewTimer(c.rule.Timeout)
	defer late.Stop()
	select {
	case d := <-w.decided:
		return c.settle(ctx, d)
	case <-late.C:
		if _, err := q.take(w.ID, Denied); err != nil { // decided just now
			return c.settle(ctx, <-w.decided)
		}
		return c.settle(ctx, Decision{Asked: AskConsole, Outcome: TimedOut})
	case <-ctx.Done():
		_, _ = q.take(w.ID, Denied)
		return nil, c.cancelled(ctx)
	}
}

// session returns the short name of the session for logs.
func (c *call) session() string { return c.r.From.Session[:min(len(c.r.From.Session), 8)] }

// record completes a decision, and passes it on.
func (c *call) record(d Decision) {
	d.At, d.Server, d.Tool = time.Now(), c.a.s.Name, c.r.Name()
	d.Principal, d.Session = c.r.From.Principal, c.session()
	c.a.s.Log.Info("approval", "tool", d.Tool, "principal", d.Principal, "session", d.Session, "outcome", string(d.Outcome), "asked", d.Asked, "operator", d.Operator)
	if to := c.a.s.Queue.to; to != nil {
		to.Decided(d)
	}
}

package health

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
)

// Connections are the open connections to one server. Its methods may be called
// concurrently.
type Connections struct {
	server string

	mu   sync.Mutex // guards the rest
	last uint64
	open map[uint64]*connection
}

// Conn is an open connection beside its calls.
type Conn interface {
	// Load returns how many calls are under way.
	Load() int
	// Gone says that the connection is of no use any more.
	Gone(err error)
	// GoneIdle is Gone if no call is under way. It reports whether that is so.
	GoneIdle(err error) bool
}

// NewConnections returns the connections to the server of that name, of which none is open.
func NewConnections(server string) *Connections {
	return &Connections{server: server, open: map[uint64]*connection{}}
}

// connection is one of them, until it is closed.
type connection struct {
	bridge.Upstream
	c      *Connections
	conn   Conn
	id     uint64
	pid    int
	said   func() string // the last lines on standard error; nil where there are none
	from   *bridge.Caller
	kind   string
	opened time.Time
}

// Add notes that a connection is open, until the Upstream that it returns is closed. up is
// as the adapter has made it, and guarded the same as calls have it. kind says for whom it
// is.
func (c *Connections) Add(conn Conn, up, guarded bridge.Upstream, from *bridge.Caller, kind string) bridge.Upstream {
	one := &connection{Upstream: guarded, c: c, conn: conn, from: from, kind: kind, opened: time.Now()}
	if p, ok := up.(interface{ Pid() int }); ok {
		one.pid = p.Pid()
	}
	if p, ok := up.(interface{ LastLines() string }); ok {
		one.said = p.LastLines
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	one.id = c.last
	c.open[one.id] = one
	return one
}

// Close closes the connection.
func (o *connection) Close(ctx context.Context) error {
	o.c.mu.Lock()
	delete(o.c.open, o.id)
	o.c.mu.Unlock()
	return o.Upstream.Close(ctx)
}

// ConnectionStatus is what is known of an open connection.
type ConnectionStatus struct {
	ID string `json:"id"`
	// Pid is of the child process; 0 where there is none.
	Pid int `json:"pid,omitempty"`
	// For says who uses it: session, one session; principal, all sessions of the
	// principal; all, everybody; call, one call; stateless, a client without sessions.
	For string `json:"for"`
	// Principal and Client say on whose behalf it was opened.
	Principal string    `json:"principal,omitempty"`
	Client    string    `json:"client,omitempty"`
	Revision  string    `json:"revision,omitempty"`
	Opened    time.Time `json:"opened"`
	// RSS is how many bytes of memory the child process and its group use; 0 where that is
	// not known.
	RSS int64 `json:"rss_bytes,omitempty"`
	// CPU is how much processor time they have had since they were started, and what they
	// have started and seen end; likewise.
	CPU   int64 `json:"cpu_ms,omitempty"`
	Calls int   `json:"calls"` // under way
	// Stderr are the last lines that the child process has written to its standard error.
	Stderr string `json:"stderr,omitempty"`
}

// Use is what a group of processes uses.
type Use struct {
	RSS int64         // bytes of memory
	CPU time.Duration // of processors, so far
}

// Used is what groups of processes use, by the id of the group.
type Used map[int]Use

// Use returns what the child processes use together; nothing if that is not known.
func (c *Connections) Use(used Used) (sum Use) {
	for _, o := range c.all() {
		sum.RSS += used[o.pid].RSS
		sum.CPU += used[o.pid].CPU
	}
	return sum
}

// List returns the connections that are open, the oldest first. said has it say what their
// child processes have written to standard error.
func (c *Connections) List(used Used, said bool) []ConnectionStatus {
	rows := []ConnectionStatus{}
	for _, o := range c.all() {
		row := ConnectionStatus{
			ID: strconv.FormatUint(o.id, 10), Pid: o.pid, For: o.kind, Principal: o.from.Principal, Client: Client(o.from),
			Opened: o.opened, Calls: o.conn.Load(), RSS: used[o.pid].RSS, CPU: used[o.pid].CPU.Milliseconds(),
		}
		if s := o.Server(); s != nil {
			row.Revision = s.Revision
		}
		if said && o.said != nil {
			row.Stderr = o.said()
		}
		rows = append(rows, row)
	}
	return rows
}

// all returns the connections, the oldest first. They are asked without the lock: who
// closes one takes it.
func (c *Connections) all() []*connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.open), func(a, b *connection) int { return int(a.id) - int(b.id) })
}

// Stop ends a connection as if its server had: calls under way are lost, and the next call
// opens another one. It reports false when there is none of that id.
func (c *Connections) Stop(id string) bool {
	n, err := strconv.ParseUint(id, 10, 64)
	c.mu.Lock()
	o := c.open[n]
	c.mu.Unlock()
	if err != nil || o == nil {
		return false
	}
	o.conn.Gone(&bridge.Error{Server: c.server, Kind: bridge.ErrLost, Public: "an operator has closed its connection; whether the server acted on the request is unknown"})
	return true
}

// StopIdle ends the connections that have no call under way, likewise, and returns how many
// these were. A call that begins meanwhile is not lost: either its connection stays, or it
// opens another one.
func (c *Connections) StopIdle() (stopped int) {
	for _, o := range c.all() {
		if o.conn.GoneIdle(&bridge.Error{Server: c.server, Kind: bridge.ErrUnsent, Public: "an operator has closed its connection, which no call was using"}) {
			stopped++
		}
	}
	return stopped
}

// Client returns what a client calls itself, for logs and operators.
func Client(from *bridge.Caller) string {
	info := gjson.GetBytes(from.Params, "clientInfo")
	return fmt.Sprintf("%.64s", strings.TrimSpace(info.Get("name").String()+" "+info.Get("version").String()))
}

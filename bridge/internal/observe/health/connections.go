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

// Connections holds the open connections to one server. Its methods may be called concurrently.
type Connections struct {
	server string

	mu   sync.Mutex // guards the rest
	last uint64
	open map[uint64]*connection
}

// Conn is the part of an open connection that operators act on.
type Conn interface {
	// Load returns the number of calls in flight.
	Load() int
	// Gone ends the connection.
	Gone(err error)
	// GoneIdle ends the connection if no call is in flight. GoneIdle reports whether it ended the connection.
	GoneIdle(err error) bool
}

// NewConnections returns the Connections of a server. None is open yet.
func NewConnections(server string) *Connections {
	return &Connections{server: server, open: map[uint64]*connection{}}
}

// connection is an open connection.
type connection struct {
	bridge.Upstream
	c         *Connections
	conn      Conn
	id        uint64
	pid       int
	lastLines func() string // of standard error; nil if the connection has none
	from      *bridge.Caller
	kind      string
	opened    time.Time
}

// Add adds an open connection until the returned Upstream is closed. up is the Upstream of the adapter, and guarded
// the Upstream that calls use. kind says which clients use the connection: see ConnectionStatus.For.
func (c *Connections) Add(conn Conn, up, guarded bridge.Upstream, from *bridge.Caller, kind string) bridge.Upstream {
	o := &connection{
		Upstream: guarded,
		c:        c,
		conn:     conn,
		from:     from,
		kind:     kind,
		opened:   time.Now(),
	}
	if p, ok := up.(interface{ Pid() int }); ok {
		o.pid = p.Pid()
	}
	if p, ok := up.(interface{ LastLines() string }); ok {
		o.lastLines = p.LastLines
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	o.id = c.last
	c.open[o.id] = o
	return o
}

func (c *connection) Close(ctx context.Context) error {
	c.c.mu.Lock()
	delete(c.c.open, c.id)
	c.c.mu.Unlock()
	return c.Upstream.Close(ctx)
}

// ConnectionStatus is the status of an open connection.
type ConnectionStatus struct {
	ID string `json:"id"`
	// Pid is the process id of the child process, or 0.
	Pid int `json:"pid,omitempty"`
	// For says which clients use the connection: session, one session; principal, all sessions of the principal; all,
	// all clients; call, one call; stateless, a stateless client.
	For string `json:"for"`
	// Principal and Client name the caller for whom the connection was opened.
	Principal string    `json:"principal,omitempty"`
	Client    string    `json:"client,omitempty"`
	Revision  string    `json:"revision,omitempty"`
	Opened    time.Time `json:"opened"`
	// RSS is the memory of the child process and its group in bytes, or 0 if unknown.
	RSS int64 `json:"rss_bytes,omitempty"`
	// CPU is the processor time of that group, with its ended children, in milliseconds, or 0 if unknown.
	CPU   int64 `json:"cpu_ms,omitempty"`
	Calls int   `json:"calls"` // in flight
	// Stderr has the last lines that the child process wrote to standard error.
	Stderr string `json:"stderr,omitempty"`
}

// Use is the memory and processor time of a group of processes.
type Use struct {
	RSS int64         // bytes of memory
	CPU time.Duration // processor time so far
}

// Used holds the use of groups of processes, by the id of the group.
type Used map[int]Use

// Processes reports whether any of the connections has a child process.
func (c *Connections) Processes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.open {
		if o.pid != 0 {
			return true
		}
	}
	return false
}

// Use returns the sum of the use of the child processes, or zero if unknown.
func (c *Connections) Use(used Used) (sum Use) {
	for _, o := range c.all() {
		sum.RSS += used[o.pid].RSS
		sum.CPU += used[o.pid].CPU
	}
	return sum
}

// List returns the status of the open connections, oldest first. stderr includes the last lines of standard error.
func (c *Connections) List(used Used, stderr bool) []ConnectionStatus {
	rows := []ConnectionStatus{}
	for _, o := range c.all() {
		row := ConnectionStatus{
			ID:        strconv.FormatUint(o.id, 10),
			Pid:       o.pid,
			For:       o.kind,
			Principal: o.from.Principal,
			Client:    Client(o.from),
			Opened:    o.opened,
			Calls:     o.conn.Load(),
			RSS:       used[o.pid].RSS,
			CPU:       used[o.pid].CPU.Milliseconds(),
		}
		if g := o.Server(); g != nil {
			row.Revision = g.Revision
		}
		if stderr && o.lastLines != nil {
			row.Stderr = o.lastLines()
		}
		rows = append(rows, row)
	}
	return rows
}

// all returns the connections, oldest first. The caller uses them without holding c.mu: ending a connection calls
// Close, which locks it.
func (c *Connections) all() []*connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.open), func(c, b *connection) int { return int(c.id) - int(b.id) })
}

// Stop ends a connection as a failure of its server would: calls in flight are lost, and the next call opens another
// connection. Stop reports false when the id is unknown.
func (c *Connections) Stop(id string) bool {
	n, err := strconv.ParseUint(id, 10, 64)
	c.mu.Lock()
	o := c.open[n]
	c.mu.Unlock()
	if err != nil || o == nil {
		return false
	}
	o.conn.Gone(&bridge.Error{
		Server: c.server,
		Kind:   bridge.ErrLost,
		Public: "an operator closed its connection; whether the server acted on the request is unknown",
	})
	return true
}

// StopIdle ends the connections without calls in flight, and returns their number. A call that begins meanwhile is
// not lost: either its connection stays, or the call opens another connection.
func (c *Connections) StopIdle() (stopped int) {
	for _, o := range c.all() {
		if o.conn.GoneIdle(&bridge.Error{
			Server: c.server,
			Kind:   bridge.ErrUnsent,
			Public: "an operator closed its idle connection",
		}) {
			stopped++
		}
	}
	return stopped
}

// Unnamed is the Client of a caller that does not say its name: the bridge fills in the name that servers require.
const Unnamed = "mcp-bridge unknown"

// Client returns the name and version of a client, cut to 64 characters, for logs and operators.
func Client(from *bridge.Caller) string {
	info := gjson.GetBytes(from.Params, "clientInfo")
	return fmt.Sprintf("%.64s", strings.TrimSpace(info.Get("name").String()+" "+info.Get("version").String()))
}

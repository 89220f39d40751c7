// Package status is the state of a bridge as GET /readyz and the API of operators have it in JSON.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// Bridge is the answer of /readyz.
type Bridge struct {
	Ready    bool   `json:"ready"`
	Reason   string `json:"reason,omitempty"`
	Draining bool   `json:"draining,omitempty"`
	// Drained is set if an operator drained the bridge. It is nil if Whole is nil.
	Drained *Drain `json:"drained,omitempty"`
	Whole   *Load  `json:"bridge,omitempty"` // nil for a caller that may not see all servers
	// Cluster is the cluster as this instance sees it. It is nil for a single instance, and if Whole is nil.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Config is the state of reloading. It is nil if the configuration is never reloaded, and if Whole is nil.
	Config *reload.Status `json:"config,omitempty"`
	// TLS is the state of the certificate. It is nil without a certificate, and if Whole is nil.
	TLS *Certificate `json:"tls,omitempty"`
	// Issuers is the state of the issuers of tokens; nil if Whole is nil.
	Issuers []Issuer `json:"issuers,omitempty"`
	Servers []Server `json:"servers"`
	// Groups are the addresses of several servers: first that of all servers, if there are several, then those of the
	// groups that the caller may use.
	Groups []Group `json:"groups,omitempty"`
}

// Group is how the address of several servers offers their tools.
type Group struct {
	Name    string   `json:"name"` // empty for all servers as one
	Servers []string `json:"servers"`
	// ToolsMode is all, search, code, or mixed if the tools of only some servers are in the list.
	ToolsMode string `json:"tools_mode"`
}

// Load is the load of the whole bridge.
type Load struct {
	Version  string `json:"version"`
	Sessions int    `json:"sessions"`
	// Together counts the sessions at /mcp, the address of all servers as one.
	Together      int   `json:"sessions_at_all_as_one,omitempty"`
	Calls         int   `json:"calls"`
	Stateless     int   `json:"calls_without_session"`
	Subscriptions int   `json:"subscriptions"`
	Connections   int64 `json:"connections"`
	Bytes         int64 `json:"bytes_in_flight"`
}

// Server is the state of a server.
type Server struct {
	Name   string     `json:"name"`
	State  string     `json:"state"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	// Transport is stdio, streamable, sse, rest, worker or in-process.
	Transport string `json:"transport,omitempty"`
	// Era and Revision are the era and the revision of the last connection.
	Era      string `json:"era,omitempty"`
	Revision string `json:"revision,omitempty"`
	// ToolsMode is how the server's own address offers its tools: all, search or code. It is empty while this depends on a
	// document that is not read yet.
	ToolsMode string `json:"tools_mode,omitempty"`
	Sessions  int    `json:"sessions"`
	Calls     int    `json:"calls"`
	// Lacking counts the clients of several servers whose last list of tools lacks this server, and LackingWhy is why.
	Lacking    int    `json:"missing_from_lists,omitempty"`
	LackingWhy string `json:"missing_from_lists_why,omitempty"`
	// P50, P95 and P99 are percentiles of the durations of the calls of the last 5 minutes, in milliseconds, and
	// ErrorShare is the share of errors among the calls, and ToolErrorShare that of calls whose tool said that it
	// failed; both are nil without calls. Tools is the number of tools in the last list that a client got, and
	// ListTokens the approximate size of the list in tokens; both are nil without a list, and for a caller that may
	// not see all tools. All are nil in /readyz.
	P50            *float64 `json:"p50_ms,omitempty"`
	P95            *float64 `json:"p95_ms,omitempty"`
	P99            *float64 `json:"p99_ms,omitempty"`
	ErrorShare     *float64 `json:"error_share,omitempty"`
	ToolErrorShare *float64 `json:"tool_error_share,omitempty"`
	Tools          *int     `json:"tools,omitempty"`
	ListTokens     *int     `json:"list_tokens,omitempty"`
	// RSS is the memory of the server's child processes in bytes, and CPU their processor time in milliseconds; both
	// are 0 unless requested.
	RSS         int64  `json:"rss_bytes,omitempty"`
	CPU         int64  `json:"cpu_ms,omitempty"`
	Queued      int    `json:"queued,omitempty"`
	Parked      int    `json:"parked_calls,omitempty"`
	Connections int    `json:"connections"`
	Children    *int   `json:"children,omitempty"` // the same number as Connections, for a server on stdio
	Restarts    uint64 `json:"restarts"`
	// Breaker is the state of the circuit breaker: closed, open until RetryAt, half-open while
	// the server is probed, or off.
	Breaker string     `json:"circuit_breaker,omitempty"`
	RetryAt *time.Time `json:"retry_at,omitempty"`
	Trips   uint64     `json:"circuit_breaker_opened,omitempty"`
	Forced  *Forced    `json:"forced,omitempty"`
	Drained *Drain     `json:"drained,omitempty"` // set if the server gets no new calls
	Cache   *Cache     `json:"cache,omitempty"`
	// LastError is the last failure or loss, also after the server recovered.
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`

	// FullReason and FullLastError are Reason and LastError with the standard error of the server's process.
	FullReason    string `json:"-"`
	FullLastError string `json:"-"`
}

// AddStderr adds to reasons the standard error of processes, and the names of files. Standard error may contain data
// of a caller, so both are only for operators that may act.
func (b *Bridge) AddStderr() {
	if b.TLS != nil {
		b.TLS.LastError = cmp.Or(b.TLS.FullError, b.TLS.LastError)
	}
	for i := range b.Servers {
		b.Servers[i].AddStderr()
	}
}

// AddStderr implements Bridge.AddStderr for one server.
func (s *Server) AddStderr() {
	s.Reason, s.LastError = cmp.Or(s.FullReason, s.Reason), cmp.Or(s.FullLastError, s.LastError)
}

// Forced is an operator's order for the circuit breaker of a server.
type Forced struct {
	Breaker string    `json:"breaker"` // open or closed
	By      string    `json:"by,omitempty"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
}

// Cache is the state of the cache of a server.
type Cache struct {
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Oldest  string `json:"oldest"` // the age of the oldest list
	Stale   bool   `json:"stale"`  // expired lists are served
	Hits    uint64 `json:"hits"`
	Misses  uint64 `json:"misses"`
}

// Certificate is the state of the bridge's certificate.
type Certificate struct {
	// Until is the time at which the certificate in use ends.
	Until time.Time `json:"until"`
	// LastError says that the files cannot be used, so that an older certificate stays in use. The reason is only
	// for operators that may act: it names the file.
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`

	FullError string `json:"-"` // LastError with its reason
}

// Issuer is the state of the keys of an issuer, for /readyz.
type Issuer struct {
	Issuer string `json:"issuer"`
	// State is ok, old or unreachable. It is old if the keys cannot be refreshed. It is unreachable if there are no
	// keys, or the last lookup of a token failed: then tokens cannot be checked.
	State string     `json:"state"`
	Since *time.Time `json:"keys_since,omitempty"`
	Fault string     `json:"last_error,omitempty"`
}

// Drain is an operator's order to drain the bridge, or one server.
type Drain struct {
	By    string     `json:"by,omitempty"`
	Since time.Time  `json:"since"`
	Until *time.Time `json:"until,omitempty"` // for a server only; nil means until an operator resumes the server
}

// Cluster is the part of /readyz about the cluster.
type Cluster struct {
	Instance  string        `json:"instance"`
	State     cluster.State `json:"state"`
	Role      string        `json:"role"`
	Workers   *Workers      `json:"workers,omitempty"` // absent if no server has place: workers
	StoreMS   float64       `json:"store_ms"`          // the duration of the last heartbeat
	Members   []Member      `json:"members"`
	Forwarded uint64        `json:"forwarded"`
	TakenOver uint64        `json:"taken_over"`
	Lost      uint64        `json:"lost_to_others"`
	Refused   uint64        `json:"refused_for_want_of_an_owner"`
}

// Member is one instance of the cluster.
type Member struct {
	Instance string `json:"instance"`
	Address  string `json:"address"`
	Version  string `json:"version"`
	Sessions int    `json:"sessions"`
	Role     string `json:"role"`
	Free     int    `json:"free,omitempty"` // number of further child processes that the instance can run for others
	Draining bool   `json:"draining,omitempty"`
	// Unreached means that the instance lives, but did not answer the last attempt of this instance to reach it.
	Unreached bool `json:"unreached,omitempty"`
}

// Workers is the state of workers, as this instance sees it.
type Workers struct {
	Queued      map[string]int `json:"queued,omitempty"`      // by server, waiting openings of all instances
	Waiting     map[string]int `json:"waiting,omitempty"`     // by server, waiting openings of this instance
	Connections map[string]int `json:"connections,omitempty"` // by worker, connections of this instance
	Running     map[string]int `json:"running,omitempty"`     // by server, child processes here for other instances
	Stopping    bool           `json:"stopping,omitempty"`    // this worker stops: calls of other instances wait for another worker
}

// Overview is the content of /readyz, and the load of the process.
type Overview struct {
	Bridge
	Process *Process `json:"process,omitempty"` // nil like Bridge.Whole
}

// Process is the load of the bridge's process.
type Process struct {
	Started    time.Time `json:"started_at"`
	Memory     uint64    `json:"memory_bytes"`
	Goroutines int       `json:"goroutines"`
	// Calls counts the calls of clients since Started.
	Calls          uint64 `json:"calls_total"`
	MaxBytes       int64  `json:"max_bytes_in_flight"`
	MaxConnections int64  `json:"max_connections"`
	// Approvals counts the calls that wait for an operator's approval.
	Approvals int `json:"approvals,omitempty"`
}

// Limit removes everything but the servers that of allows.
func (b *Bridge) Limit(of func(server string) bool) {
	b.Whole, b.Cluster, b.Config, b.TLS, b.Issuers, b.Drained = nil, nil, nil, nil, nil, nil
	b.Servers = slices.DeleteFunc(b.Servers, func(st Server) bool { return !of(st.Name) })
	b.Groups = slices.DeleteFunc(b.Groups, func(g Group) bool { return g.Name != "" && !of(g.Name) })
	for i := range b.Groups {
		b.Groups[i].Servers = slices.DeleteFunc(b.Groups[i].Servers, func(name string) bool { return !of(name) })
	}
	b.Groups = slices.DeleteFunc(b.Groups, func(g Group) bool { return len(g.Servers) == 0 })
	if b.Reason != "" && !b.Draining {
		b.Reason = "too few servers work" // the names of servers, and how many there are, are only for callers that may see all of them
	}
}

// Missing says in a sentence which servers are missing from the lists of clients, and why; empty if none is.
func (b *Bridge) Missing() string {
	var all []string
	for i := range b.Servers {
		s := &b.Servers[i]
		clients := "clients"
		if s.Lacking == 1 {
			clients = "client"
		}
		if s.Lacking > 0 {
			all = append(all, fmt.Sprintf("%s (%d %s: %s)", s.Name, s.Lacking, clients, s.LackingWhy))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "missing from the lists of clients: " + strings.Join(all, ", ")
}

// Text returns the state as text for people.
func (b *Bridge) Text(now time.Time) string {
	var out strings.Builder
	if out.WriteString("ready"); !b.Ready {
		out.Reset()
		out.WriteString("not ready: " + b.Reason)
	}
	if out.WriteString("\n"); b.Whole != nil {
		ends := map[bool]string{true: "s"} // the ending that a noun loses if the count is 1
		count := func(n int, what string) string {
			return strings.TrimSuffix(fmt.Sprintf("%d %s", n, what), ends[n == 1])
		}
		fmt.Fprintf(&out, "%s, %s (%d without a session), %s, %s\n", count(b.Whole.Sessions, "sessions"), count(b.Whole.Calls, "calls"),
			b.Whole.Stateless, count(b.Whole.Subscriptions, "subscriptions"), count(int(b.Whole.Connections), "connections"))
	}
	if s := b.Config; s != nil {
		fmt.Fprintf(&out, "configuration %s, read %s ago\n", s.Hash, ago(now, &s.LoadedAt))
		if s.LastError != "" {
			fmt.Fprintf(&out, "not reloaded %s ago: %s\n", ago(now, s.LastErrorAt), s.LastError)
		}
		if len(s.Pending) > 0 {
			fmt.Fprintf(&out, "after a restart: %s\n", strings.Join(s.Pending, ", "))
		}
	}
	if text := b.Missing(); text != "" {
		out.WriteString(line(text) + "\n")
	}
	if c := b.TLS; c != nil && c.LastError != "" {
		fmt.Fprintf(&out, "%s (since %s; it is good until %s)\n", line(c.LastError), ago(now, c.LastErrorAt), c.Until.UTC().Format(time.RFC3339))
	}
	out.WriteString("\n")
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVER\tSTATE\tSINCE\tTRANSPORT\tREVISION\tSESSIONS\tCALLS\tCONNECTIONS\tRESTARTS\tBREAKER\tCACHE\tLAST ERROR")
	for _, s := range b.Servers {
		last := "-"
		if s.LastError != "" {
			last = "(" + ago(now, s.LastErrorAt) + " ago) " + line(s.LastError)
		} else if s.Reason != "" {
			last = line(s.Reason)
		}
		cache := "-"
		if s.Cache != nil {
			cache = fmt.Sprintf("%d, %s old", s.Cache.Entries, s.Cache.Oldest)
			if s.Cache.Stale {
				cache += ", stale"
			}
		}
		breaker := dash(s.Breaker)
		if s.Forced != nil {
			breaker += " by an operator"
		}
		if s.RetryAt != nil {
			breaker += " for " + max(0, s.RetryAt.Sub(now)).Round(time.Second).String()
		}
		state := s.State
		if s.Drained != nil {
			state += ", drained"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", s.Name, state, ago(now, s.Since), dash(s.Transport), dash(s.Revision),
			s.Sessions, s.Calls, s.Connections, s.Restarts, breaker, cache, last)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return out.String()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// ago returns the time since t, as text.
func ago(now time.Time, t *time.Time) string {
	if t == nil {
		return "-"
	}
	return now.Sub(*t).Round(time.Second).String()
}

// maxLine bounds an error in a table, in characters. That is enough for the bridge's own text and the last lines of
// most processes. A longer error keeps its beginning and its last endLine characters, where most programs say what
// they lack.
const (
	maxLine = 600
	endLine = 450
)

// line returns a text as one line of limited length.
func line(s string) string {
	s = sanitize.Text(strings.Join(strings.Fields(s), " "))
	if r := []rune(s); len(r) > maxLine {
		s = string(r[:maxLine-endLine]) + " … " + string(r[len(r)-endLine:])
	}
	return s
}

package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/server/internal/access"
	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/config/reload"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// readiness is the answer of /readyz.
type readiness struct {
	Ready    bool   `json:"ready"`
	Reason   string `json:"reason,omitempty"`
	Draining bool   `json:"draining,omitempty"`
	// Drained is set if an operator drained the bridge. It is nil if Whole is nil.
	Drained *drained `json:"drained,omitempty"`
	Whole   *load    `json:"bridge,omitempty"` // nil for a caller that may not see all servers
	// Cluster is the cluster as this instance sees it. It is nil without one, and if Whole is nil.
	Cluster *clustered `json:"cluster,omitempty"`
	// Config is the state of reloading. It is nil without it, and if Whole is nil.
	Config *reload.Status `json:"config,omitempty"`
	// TLS is the state of the certificate. It is nil without one, and if Whole is nil.
	TLS *certificateStatus `json:"tls,omitempty"`
	// Issuers is the state of the issuers of tokens; nil if Whole is nil.
	Issuers []access.IssuerState `json:"issuers,omitempty"`
	Servers []state              `json:"servers"`
}

// load is the load of the whole bridge.
type load struct {
	Version  string `json:"version"`
	Sessions int    `json:"sessions"`
	// Together counts the sessions at /mcp, of all servers as one.
	Together      int   `json:"sessions_at_all_as_one,omitempty"`
	Calls         int   `json:"calls"`
	Stateless     int   `json:"calls_without_session"`
	Subscriptions int   `json:"subscriptions"`
	Connections   int64 `json:"connections"`
	Bytes         int64 `json:"bytes_in_flight"`
}

// state is the state of a server.
type state struct {
	Name   string     `json:"name"`
	State  string     `json:"state"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	// Transport is stdio, streamable, sse, rest, worker or in-process.
	Transport string `json:"transport,omitempty"`
	// Era and Revision are the era and the revision of the last connection.
	Era      string `json:"era,omitempty"`
	Revision string `json:"revision,omitempty"`
	Sessions int    `json:"sessions"`
	Calls    int    `json:"calls"`
	// P50, P95 and P99 are percentiles of the durations of the calls of the last 5 minutes, in milliseconds, and ErrorShare
	// is the share of errors among the calls; nil without calls. Tools is the number of
	// tools in the last list that a client got, and ListTokens its approximate size; nil without one, and for a caller
	// without the right to see them. All are nil in /readyz.
	P50        *float64 `json:"p50_ms,omitempty"`
	P95        *float64 `json:"p95_ms,omitempty"`
	P99        *float64 `json:"p99_ms,omitempty"`
	ErrorShare *float64 `json:"error_share,omitempty"`
	Tools      *int     `json:"tools,omitempty"`
	ListTokens *int     `json:"list_tokens,omitempty"`
	// RSS and CPU are the memory and the processor time of its child processes, if requested.
	RSS         int64  `json:"rss_bytes,omitempty"`
	CPU         int64  `json:"cpu_ms,omitempty"`
	Queued      int    `json:"queued,omitempty"`
	Parked      int    `json:"parked_calls,omitempty"`
	Connections int    `json:"connections"`
	Children    *int   `json:"children,omitempty"` // Connections, of a server on stdio
	Restarts    uint64 `json:"restarts"`
	// Breaker is the state of the circuit breaker: closed, open until RetryAt, half-open while
	// the server is probed, or off.
	Breaker string      `json:"circuit_breaker,omitempty"`
	RetryAt *time.Time  `json:"retry_at,omitempty"`
	Trips   uint64      `json:"circuit_breaker_opened,omitempty"`
	Forced  *forced     `json:"forced,omitempty"`
	Drained *drained    `json:"drained,omitempty"` // it gets no new calls
	Cache   *cacheState `json:"cache,omitempty"`
	// LastError is the last failure or loss, also after the server recovered.
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`

	reason, last string // Reason and LastError with the standard error of the server's process; see tell
}

// addStderr adds to reasons the standard error of processes, and the names of files. The former may contain data of
// a caller, so both are only for operators that may act.
func (r *readiness) addStderr() {
	if r.TLS != nil {
		r.TLS.LastError = cmp.Or(r.TLS.last, r.TLS.LastError)
	}
	for i := range r.Servers {
		r.Servers[i].addStderr()
	}
}

// addStderr implements readiness.addStderr for one server.
func (s *state) addStderr() {
	s.Reason, s.LastError = cmp.Or(s.reason, s.Reason), cmp.Or(s.last, s.LastError)
}

// forced is an operator's order for the circuit breaker of a server.
type forced struct {
	Breaker string    `json:"breaker"` // open or closed
	By      string    `json:"by,omitempty"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
}

// cacheState is the state of the cache of a server.
type cacheState struct {
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Oldest  string `json:"oldest"` // its age
	Stale   bool   `json:"stale"`  // expired lists are served
	Hits    uint64 `json:"hits"`
	Misses  uint64 `json:"misses"`
}

// transportStdio is the transport of a child process.
const transportStdio = "stdio"

// readiness returns the state of the bridge and of each server.
func (s *server) readiness() *readiness {
	t := s.g.Totals()
	out := &readiness{Whole: &load{
		Version:       Version(),
		Sessions:      t.Sessions,
		Together:      t.Aggregate,
		Calls:         t.Calls,
		Stateless:     t.Stateless,
		Subscriptions: t.Subscriptions,
		Connections:   t.Lanes,
		Bytes:         t.Bytes,
	}}
	servers := s.g.Status()
	for i := range servers {
		out.Servers = append(out.Servers, s.state(&servers[i]))
	}
	if s.instance != nil {
		out.Cluster = s.instance.status()
	}
	if s.reloader != nil {
		now := s.reloader.Status()
		out.Config = &now
	}
	out.TLS, out.Issuers, out.Drained = s.cert.status(), s.access.Issuers(), s.drained.Load()
	out.Reason, out.Draining = s.unready(servers)
	out.Ready = out.Reason == ""
	return out
}

// queues adds the state of workers. It reads the store, so it is called only for a caller that may see it.
func (s *server) queues(r *readiness) {
	if s.instance != nil {
		r.Cluster.Workers = s.instance.workerState(s.Placed())
	}
}

// unready returns the reason that the bridge is not ready with its servers in these states, or "". If all servers must
// work, it tries those whose next attempt is due: no client can, while a probe keeps all clients away.
func (s *server) unready(servers []gateway.Status) (why string, draining bool) {
	all := s.c().Ready == config.ReadyAll
	var useless []string
	for i := range servers {
		st := &servers[i]
		if !st.Usable || all && st.State == gateway.Failing && st.Drained == nil && s.g.Try(st.Name) {
			useless = append(useless, st.Name)
		}
	}
	switch {
	case s.g.Draining() || s.instance != nil && s.instance.node.Draining():
		return "the bridge is stopping", true
	case s.instance != nil && s.instance.node.State() == cluster.Isolated:
		return "this instance cannot reach the store of the cluster", false
	case s.drained.Load() != nil:
		return "drained by an operator: current clients are still served", true
	case len(useless) == len(servers):
		return "no server works", false
	case all && len(useless) > 0:
		return strings.Join(useless, ", ") + ": does not work, and all servers must work (ready: all)", false
	}
	return "", false
}

// state returns the state of a server.
func (s *server) state(st *gateway.Status) state {
	row := state{
		Name:        st.Name,
		State:       st.State,
		Reason:      st.Reason,
		Since:       timeOrNil(st.Since),
		Transport:   s.transport(st.Name),
		Revision:    st.Revision,
		Sessions:    st.Sessions,
		Calls:       st.Calls,
		Queued:      st.Queued,
		Parked:      st.Parked,
		Connections: st.Lanes,
		Restarts:    st.Restarts,
		Breaker:     st.Breaker,
		RetryAt:     timeOrNil(st.RetryAt),
		Trips:       st.Trips,
		LastError:   st.Last,
		LastErrorAt: timeOrNil(st.LastAt),
	}
	if st.Err != nil {
		row.reason = st.Err.Error()
	}
	if st.LastErr != nil {
		row.last = st.LastErr.Error()
	}
	if b := s.table.Load().backends[st.Name]; b != nil && b.api != nil {
		if at, why := b.api.Behind(); why != nil && at.After(st.LastAt) {
			row.LastError, row.LastErrorAt, row.last = "the new configuration is not applied yet: "+bridge.Brief(why), timeOrNil(at), ""
		}
	}
	if row.Transport == transportStdio {
		row.Children = &row.Connections
	}
	if s := st.Cache; s.Entries > 0 {
		row.Cache = &cacheState{s.Entries, s.Bytes, s.Oldest.Round(time.Second).String(), s.Stale, s.Hits, s.Misses}
	}
	if f := st.Forced; f != nil {
		row.Forced = &forced{"closed", f.By, f.Since, f.Until}
		if f.Open {
			row.Forced.Breaker = "open"
		}
	}
	if o := st.Drained; o != nil {
		row.Drained = &drained{o.By, o.Since, timeOrNil(o.Until)}
	}
	if st.Revision != "" {
		row.Era = era.Name(st.Revision)
	}
	return row
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// ready answers /readyz: as JSON, or as a table for people.
func (s *server) ready(w http.ResponseWriter, r *http.Request, base string) {
	all := s.readiness()
	sees, acts, inside := s.access.StatusView(r, base)
	if acts {
		all.addStderr()
	}
	status := http.StatusOK
	if !all.Ready {
		status = http.StatusServiceUnavailable
	}
	if !sees.All {
		all.limit(sees.Of)
	} else if inside {
		s.queues(all)
	}
	w.Header().Set("Cache-Control", "no-store") // it is of this moment, and of this caller
	switch format := r.URL.Query().Get("format"); {
	case !inside: // the status is the whole answer
		answerObject(w, status, "ready", all.Ready)
	case format == "text", format == "" && wantsText(r.Header.Get("Accept")):
		answer.Text(w, status, all.table(time.Now()))
	default:
		body, _ := json.MarshalIndent(all, "", "    ") // nothing in it can fail
		answer.Data(w, status, "application/json; charset=utf-8", sanitize.JSON(body))
	}
}

// wantsText reports whether an Accept header names plain text before a type that includes JSON.
func wantsText(accept string) bool {
	for kind := range strings.SplitSeq(accept, ",") {
		kind, _, _ = strings.Cut(kind, ";")
		switch strings.TrimSpace(kind) {
		case "text/plain", "text/*":
			return true
		case "application/json", "application/*", "*/*":
			return false
		}
	}
	return false
}

// limit removes everything but the servers that of allows.
func (r *readiness) limit(of func(server string) bool) {
	r.Whole, r.Cluster, r.Config, r.TLS, r.Issuers, r.Drained = nil, nil, nil, nil, nil, nil
	r.Servers = slices.DeleteFunc(r.Servers, func(st state) bool { return !of(st.Name) })
	if r.Reason != "" && !r.Draining {
		r.Reason = "too few servers work" // names and numbers of servers are only for callers that may see them
	}
}

// table returns the readiness as text for people.
func (r *readiness) table(now time.Time) string {
	var b strings.Builder
	if b.WriteString("ready"); !r.Ready {
		b.Reset()
		b.WriteString("not ready: " + r.Reason)
	}
	if b.WriteString("\n"); r.Whole != nil {
		ends := map[bool]string{true: "s"} // for a count of one
		count := func(n int, what string) string {
			return strings.TrimSuffix(fmt.Sprintf("%d %s", n, what), ends[n == 1])
		}
		fmt.Fprintf(&b, "%s, %s (%d without a session), %s, %s\n", count(r.Whole.Sessions, "sessions"), count(r.Whole.Calls, "calls"),
			r.Whole.Stateless, count(r.Whole.Subscriptions, "subscriptions"), count(int(r.Whole.Connections), "connections"))
	}
	if s := r.Config; s != nil {
		fmt.Fprintf(&b, "configuration %s, read %s ago\n", s.Hash, ago(now, &s.LoadedAt))
		if s.LastError != "" {
			fmt.Fprintf(&b, "not reloaded %s ago: %s\n", ago(now, s.LastErrorAt), s.LastError)
		}
		if len(s.Pending) > 0 {
			fmt.Fprintf(&b, "after a restart: %s\n", strings.Join(s.Pending, ", "))
		}
	}
	if c := r.TLS; c != nil && c.LastError != "" {
		fmt.Fprintf(&b, "%s (since %s; it is good until %s)\n", line(c.LastError), ago(now, c.LastErrorAt), c.Until.UTC().Format(time.RFC3339))
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVER\tSTATE\tSINCE\tTRANSPORT\tREVISION\tSESSIONS\tCALLS\tCONNECTIONS\tRESTARTS\tBREAKER\tCACHE\tLAST ERROR")
	for _, s := range r.Servers {
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
	return b.String()
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

// maxLine bounds an error in a table. It has room for the bridge's own text and the last lines of most
// processes; a longer one keeps its beginning and more of its end, where most programs say what they lack.
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

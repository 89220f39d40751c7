package server

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/server/internal/answer"
	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

const transportStdio = "stdio"

func (s *server) readiness() *status.Bridge {
	t := s.g.Totals()
	out := &status.Bridge{Whole: &status.Load{
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
	for _, g := range s.g.Groups() {
		out.Groups = append(out.Groups, status.Group{
			Name:      g.Name,
			Servers:   g.Servers,
			ToolsMode: cmp.Or(string(g.Mode), "mixed"),
		})
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

// queues adds the state of workers. queues reads the store, so it is called only for a caller that may see it.
func (s *server) queues(b *status.Bridge) {
	if s.instance != nil {
		b.Cluster.Workers = s.instance.workerState(s.Placed())
	}
}

// unready returns the reason that the bridge is not ready with its servers in these states, or "". draining reports
// whether the bridge is stopping. If all servers must work, unready tries the failing servers whose next attempt is
// due: no client does, while the probe keeps all clients away.
func (s *server) unready(servers []gateway.Status) (why string, draining bool) {
	all := s.Config().Ready == config.ReadyAll
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

func (s *server) state(st *gateway.Status) status.Server {
	row := status.Server{
		Name:        st.Name,
		State:       st.State,
		Reason:      st.Reason,
		Since:       timeOrNil(st.Since),
		Transport:   s.transport(st.Name),
		Revision:    st.Revision,
		ToolsMode:   string(st.Tools),
		Sessions:    st.Sessions,
		Calls:       st.Calls,
		Lacking:     st.Lacking,
		LackingWhy:  st.LackingWhy,
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
		row.FullReason = st.Err.Error()
	}
	if st.LastErr != nil {
		row.FullLastError = st.LastErr.Error()
	}
	if b := s.table.Load().backends[st.Name]; b != nil && b.api != nil {
		if at, why := b.api.Behind(); why != nil && at.After(st.LastAt) {
			row.LastError, row.LastErrorAt, row.FullLastError = "the new configuration is not applied yet: "+bridge.Brief(why), timeOrNil(at), ""
		}
	}
	if row.Transport == transportStdio {
		row.Children = &row.Connections
	}
	if s := st.Cache; s.Entries > 0 {
		row.Cache = &status.Cache{
			Entries: s.Entries,
			Bytes:   s.Bytes,
			Oldest:  s.Oldest.Round(time.Second).String(),
			Stale:   s.Stale,
			Hits:    s.Hits,
			Misses:  s.Misses,
		}
	}
	if f := st.Forced; f != nil {
		row.Forced = &status.Forced{
			Breaker: "closed",
			By:      f.By,
			Since:   f.Since,
			Until:   f.Until,
		}
		if f.Open {
			row.Forced.Breaker = "open"
		}
	}
	if o := st.Drained; o != nil {
		row.Drained = &status.Drain{
			By:    o.By,
			Since: o.Since,
			Until: timeOrNil(o.Until),
		}
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
		all.AddStderr()
	}
	code := http.StatusOK
	if !all.Ready {
		code = http.StatusServiceUnavailable
	}
	if !sees.All {
		all.Limit(sees.Of)
	} else if inside {
		s.queues(all)
	}
	w.Header().Set("Cache-Control", "no-store") // the answer depends on the moment and the caller
	switch format := r.URL.Query().Get("format"); {
	case !inside: // the status is the whole answer
		answerObject(w, code, "ready", all.Ready)
	case format == "text", format == "" && wantsText(r.Header.Get("Accept")):
		answer.Text(w, code, all.Text(time.Now()))
	default:
		body, _ := json.MarshalIndent(all, "", "    ") // every member has a JSON form
		answer.Data(w, code, "application/json; charset=utf-8", sanitize.JSON(body))
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

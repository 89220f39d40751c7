package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// workers collects the metrics of a cluster's workers. It collects nothing if no server is placed at workers.
type workers struct {
	now                              Workers
	queued, waiting, lanes, children *prometheus.Desc
}

func newWorkers(now Workers) *workers {
	desc := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc("mcp_bridge_cluster_"+name, help, []string{label}, nil)
	}
	return &workers{
		now:      now,
		queued:   desc("worker_queue_length", "Openings of connections of all instances that wait for a worker.", "server"),
		waiting:  desc("worker_openings_waiting", "Openings of connections of this instance that wait for a worker.", "server"),
		lanes:    desc("worker_connections", "Connections of this instance to child processes at workers, by worker.", "worker"),
		children: desc("worker_children", "Child processes that this worker runs for others, and slots reserved for them.", "server"),
	}
}

func (w *workers) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{w.queued, w.waiting, w.lanes, w.children} {
		to <- d
	}
}

func (w *workers) Collect(to chan<- prometheus.Metric) {
	st := w.now.Status()
	show := func(d *prometheus.Desc, of map[string]int, named func(string) string) {
		for name, n := range of {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), named(name))
		}
	}
	same := func(name string) string { return name }
	show(w.queued, st.Queued, same)
	show(w.waiting, st.Waiting, same)
	show(w.lanes, st.Tunnels, func(id string) string { return id[:min(len(id), session.TagLength)] })
	show(w.children, st.Running, same)
}

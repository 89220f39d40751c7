package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
)

// Minutes is the longest time of Tools.
const Minutes = 15

// minuteBuckets is the number of buckets of a minute.
const minuteBuckets = int(time.Minute / Step)

// pastTools is the history of a server's tools, by the minute.
type pastTools struct {
	was     map[*toolMetrics]toolTotals // the counters at the end of the last of minutes
	minutes []toolMinute                // the newest last
	changed bool                        // there were calls after the last of minutes
}

// toolMinute has the counts of the tools that were called in one minute.
type toolMinute struct {
	end   int // the number of buckets of the history at the end of the minute
	tools map[*toolMetrics]toolTotals
}

// toolTotals are the counters of a tool.
type toolTotals struct {
	outcomes
	seconds float64
}

func (t toolTotals) plus(o toolTotals) toolTotals {
	return toolTotals{outcomes{t.calls + o.calls, t.errors + o.errors, t.toolErrors + o.toolErrors}, t.seconds + o.seconds}
}

func (t toolTotals) minus(o toolTotals) toolTotals {
	return toolTotals{outcomes{t.calls - o.calls, t.errors - o.errors, t.toolErrors - o.toolErrors}, t.seconds - o.seconds}
}

// tick ends a minute when it is over. called means that the server had calls since the last tick.
func (p *pastTools) tick(h *History, s *serverMetrics, called bool) {
	p.changed = p.changed || called
	if h.n%minuteBuckets != 0 {
		return
	}
	p.minutes = slices.DeleteFunc(p.minutes, func(t toolMinute) bool { return h.n-t.end >= Minutes*minuteBuckets })
	if !p.changed {
		return
	}
	p.changed = false
	one := toolMinute{h.n, p.since(h, s)}
	if len(one.tools) == 0 {
		return
	}
	if p.was == nil {
		p.was = map[*toolMetrics]toolTotals{}
	}
	for tool, n := range one.tools {
		p.was[tool] = p.was[tool].plus(n)
	}
	p.minutes = append(p.minutes, one)
}

// since returns what was counted for each tool after the last minute in p.minutes. since leaves out tools without
// calls.
func (p *pastTools) since(h *History, s *serverMetrics) map[*toolMetrics]toolTotals {
	out := map[*toolMetrics]toolTotals{}
	for _, tool := range s.tools.all() {
		if n := h.readTool(tool).minus(p.was[tool]); n.calls > 0 {
			out[tool] = n
		}
	}
	return out
}

// readTool reads the counters of a tool.
func (h *History) readTool(tool *toolMetrics) (t toolTotals) {
	for outcome := range tool.calls {
		c := tool.calls[outcome].Load()
		if c == nil || bridge.Outcome(outcome) == bridge.CircuitOpen { // refused calls have no time
			continue
		}
		t.add(bridge.Outcome(outcome), uint64(h.value(*c)))
	}
	if c := tool.seconds.Load(); c != nil {
		t.seconds = h.value(*c)
	}
	return t
}

// ToolUse is the use of a tool.
type ToolUse struct {
	Server     string  `json:"server"`
	Tool       string  `json:"tool"`
	Calls      uint64  `json:"calls"`
	Errors     uint64  `json:"errors"`
	ToolErrors uint64  `json:"tool_errors"`
	Mean       float64 `json:"mean_ms"`
}

// Tools returns the tools that were called in the last minutes, of the servers that of accepts, the slowest first.
// The first of these minutes may be longer, by less than a minute.
func (h *History) Tools(minutes int, of func(server string) bool) []ToolUse {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []ToolUse{}
	for name, p := range h.of {
		if name == "" || !of(name) {
			continue
		}
		sum := p.tools.since(h, p.read)
		for _, t := range p.tools.minutes {
			if h.n-t.end < minutes*minuteBuckets {
				for tool, n := range t.tools {
					sum[tool] = sum[tool].plus(n)
				}
			}
		}
		for tool, t := range sum {
			out = append(out, ToolUse{name, tool.name, t.calls, t.errors, t.toolErrors, round(1000 * t.seconds / float64(t.calls))})
		}
	}
	slices.SortFunc(out, func(t, b ToolUse) int {
		return cmp.Or(cmp.Compare(b.Mean, t.Mean), cmp.Compare(t.Server, b.Server), cmp.Compare(t.Tool, b.Tool))
	})
	return out
}

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// mostShown bounds the calls and the failures that top shows.
const mostShown = 15

func newTop(stdout io.Writer) *cobra.Command {
	var l looker
	var once, asJSON bool
	every := 2 * time.Second
	cmd := &cobra.Command{
		Use:   "top [URL]",
		Short: "Show a live view of servers and calls",
		Long: `top shows the servers of the bridge at URL, the active calls and the last failures,
every two seconds, until q or Ctrl-C. Without URL, the configuration file says where
the bridge is. CALLS/S is the mean of the last 30 seconds. FAILED, TOOL ERR and
LAST 15 MIN count calls of the last 15 minutes. TOOL ERR are the calls whose tool said
that it failed; ERROR has the tool's words if the bridge has console: payloads. While
the bridge does not answer, the first line says why, and top tries again. s sorts the
servers by another column, r turns the order around, ? shows the keys.

With --json it prints one JSON object a line: at, status, calls and series are the
answers of the bridge's API.

With access rules, a key is needed: see --token-env. Callers in admin or viewers see
all calls. With console: on, others see their own.`,
		Example: `  mcp-bridge top
  mcp-bridge top --once
  mcp-bridge top https://mcp.example.com --token-env OPS_KEY`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < 100*time.Millisecond {
				return exit.Usagef("--every is %v: must be at least 100ms", every)
			}
			if err := l.find(cmd, args); err != nil {
				return err
			}
			is, _ := terminal.Is(stdout)
			live := is && !once && !asJSON
			ctx := cmd.Context()
			on := screen{color: is && terminal.Colors()}
			var keys <-chan byte
			var by order
			if live {
				var restore func()
				if ctx, keys, restore = untilQuit(ctx, cmd.InOrStdin()); keys != nil {
					on.hint = "q quits, ? keys"
				}
				defer restore()
				fmt.Fprint(stdout, "\x1b[2J")
			}
			var last *topView // the last view without a fault
			for {
				t, err := l.view(ctx)
				_, final := errors.AsType[refusal](err)
				switch {
				case err == nil:
					last = t
				case !once && ctx.Err() != nil:
					return nil
				case last == nil, final, asJSON:
					return err
				default: // the bridge may be back soon
					old := *last
					old.fault, t = err, &old
				}
				t.by = by
				next := time.After(every)
				for shown := true; shown; {
					if _, on.width = terminal.Is(stdout); live {
						on.rows = terminal.Rows(stdout) - 1 // the cursor is in the last row
					}
					text := t.text(on)
					if asJSON {
						text = t.json()
					}
					if live { // over the previous text; see terminal.Raw for the ends of lines. At the end of a full line, \x1b[K would erase the last cell
						text = "\x1b[H\x1b[K" + strings.ReplaceAll(text, "\n", "\r\n\x1b[K") + "\x1b[J"
					}
					if _, err := io.WriteString(stdout, text); err != nil || once {
						return err
					}
					select {
					case <-ctx.Done():
						return nil
					case key := <-keys:
						by = by.press(key)
						t.by = by
					case <-next:
						shown = false
					}
				}
			}
		},
	}
	l.add(cmd, "your key of the bridge", 5*time.Second)
	cmd.Flags().BoolVar(&once, "once", false, "print it once")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each update as one line of JSON")
	cmd.Flags().DurationVar(&every, "every", every, "time between updates")
	return cmd
}

// untilQuit returns a context that ends when the user types q or Ctrl-C, and the other keys that the user types. keys
// is nil if stdin is not a terminal. The goroutine cannot be stopped: its read ends with the process.
func untilQuit(ctx context.Context, stdin io.Reader) (_ context.Context, keys <-chan byte, done func()) {
	ctx, stop := context.WithCancel(ctx)
	restore, ok := terminal.Raw(stdin)
	if !ok {
		return ctx, nil, stop
	}
	typed := make(chan byte)
	go func() {
		const interrupt = 3 // Ctrl-C
		key := make([]byte, 1)
		for {
			if n, err := stdin.Read(key); err != nil || n > 0 && (key[0] == 'q' || key[0] == interrupt) {
				stop()
				return
			}
			select {
			case typed <- key[0]:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, typed, func() { stop(); restore() }
}

// topKeys explains the keys of top.
const topKeys = "q quits, s sorts by the next column, r turns the order around, ? hides this"

// order is how top shows the servers.
type order struct {
	column  int // of sortColumns
	reverse bool
	keys    bool // whether the keys are explained
}

// press returns the order after a key.
func (o order) press(key byte) order {
	switch key {
	case 's':
		o.column, o.reverse = (o.column+1)%len(sortColumns), false
	case 'r':
		o.reverse = !o.reverse
	case '?', 'h':
		o.keys = !o.keys
	}
	return o
}

// sortColumns are the columns by which top sorts servers: first the worst ones by STATE, then the highest numbers.
// value returns the number.
var sortColumns = []struct {
	head  string
	value func(v *topView, s *status.Server) float64
}{
	{"STATE", func(_ *topView, s *status.Server) float64 { return float64(-badness(s)) }},
	{"CALLS/S", func(v *topView, s *status.Server) float64 { return v.series.mean(v.columns(s)) }},
	{"FAILED", func(v *topView, s *status.Server) float64 { return sum(v.columns(s).Errors) }},
	{"TOOL ERR", func(v *topView, s *status.Server) float64 { return sum(v.columns(s).ToolErrors) }},
	{"P95", func(_ *topView, s *status.Server) float64 {
		if s.P95 == nil {
			return -1
		}
		return *s.P95
	}},
	{"MEMORY", func(_ *topView, s *status.Server) float64 { return float64(s.RSS) }},
}

// sort sorts the servers by the chosen column. Equal ones stay in their order.
func (v *topView) sort() {
	of := map[string]float64{}
	for i := range v.state.Servers {
		of[v.state.Servers[i].Name] = sortColumns[v.by.column].value(v, &v.state.Servers[i])
	}
	slices.SortStableFunc(v.state.Servers, func(s, y status.Server) int {
		if v.by.reverse {
			s, y = y, s
		}
		return cmp.Compare(of[y.Name], of[s.Name])
	})
}

// columns returns the numbers of a server.
func (v *topView) columns(s *status.Server) topColumns {
	for _, one := range v.series.Servers {
		if one.Server == s.Name {
			return one
		}
	}
	return topColumns{}
}

// topView is what top shows at one time.
type topView struct {
	At     time.Time       `json:"at"`
	Status json.RawMessage `json:"status"`
	Calls  json.RawMessage `json:"calls"`
	Series json.RawMessage `json:"series,omitempty"`

	state  bridgeState
	calls  topCalls
	series topSeries
	by     order
	fault  error // the reason why there is no later view; may be nil
}

type topCalls struct {
	Active   []topCall `json:"under_way"`
	Failures []topCall
}

type topCall struct {
	Server, Method, Name, Principal, Session, Outcome, Error string
	Began                                                    time.Time
	Took                                                     float64 `json:"took_ms"`
}

// topSeries holds the numbers of the last minutes. Step is in milliseconds. The newest number of a column is the last.
// A column may be shorter than other columns.
type topSeries struct {
	Step    float64
	Total   topColumns
	Servers []topColumns
}

type topColumns struct {
	Server        string
	Calls, Errors []float64
	ToolErrors    []float64 `json:"tool_errors"`
}

// view requests what top shows.
func (l *looker) view(ctx context.Context) (*topView, error) {
	t := &topView{At: time.Now()}
	var err error
	if t.Status, err = l.look(ctx, "status?memory=true", &t.state); err != nil {
		return nil, err
	}
	if t.Calls, err = l.look(ctx, "calls?limit="+fmt.Sprint(mostShown), &t.calls); err != nil {
		return nil, err
	}
	status, _, text, err := l.send(ctx, http.MethodGet, "/"+server.AdminPath+"series", nil)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusNotFound: // an older bridge
		return t, nil
	case status != http.StatusOK:
		return nil, refused(l.url, status, text)
	}
	if err := json.Unmarshal(text, &t.series); err != nil {
		return nil, exit.With(exit.Server, fmt.Errorf("the answer of %s is not that of a bridge: %w", l.url, err))
	}
	t.Series = text
	return t, nil
}

// json returns the view as one line.
func (t *topView) json() string {
	text, _ := json.Marshal(t) // the parts have been decoded, so they can be marshalled
	return string(sanitize.JSON(text)) + "\n"
}

// known reports whether there are numbers.
func (t *topSeries) known() bool { return t.Step >= 1 }

// rate returns the calls per second in the last 30 seconds.
func (s *topSeries) rate(t topColumns) string {
	if !s.known() {
		return ""
	}
	return fmt.Sprintf("%.1f", s.mean(t))
}

// mean returns what rate formats; 0 without numbers.
func (s *topSeries) mean(t topColumns) float64 {
	if !s.known() {
		return 0
	}
	n := min(int(30_000/s.Step), len(t.Calls))
	return sum(t.Calls[len(t.Calls)-n:]) / 30
}

func sum(all []float64) (n float64) {
	for _, one := range all {
		n += one
	}
	return n
}

// sparkMinutes is the number of minutes, and of blocks, in a sparkline.
const sparkMinutes = 15

// spark draws the calls of each minute, with the last minute at the end. The highest block is the minute with the most
// calls.
func (s *topSeries) spark(t topColumns) string {
	if !s.known() {
		return ""
	}
	var minutes [sparkMinutes]float64
	most := 0.0
	for i, n := range t.Calls {
		if ago := float64(len(t.Calls)-1-i) * s.Step / 60_000; ago < sparkMinutes {
			at := sparkMinutes - 1 - int(ago)
			minutes[at] += n
			most = max(most, minutes[at])
		}
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, n := range minutes {
		if n <= 0 {
			b.WriteRune('·')
			continue
		}
		b.WriteRune(blocks[max(0, int(n/most*float64(len(blocks)-1)))]) // n may be infinite
	}
	return b.String()
}

// text formats the output of top.
func (t *topView) text(on screen) string {
	out := t.state.head(on)
	if t.fault != nil {
		out = on.paint(red, on.line(t.fault.Error())) + "\n"
	}
	var totals []string
	if l := t.state.Whole; l != nil {
		totals = append(totals, count(l.Sessions, "session"), count(l.Calls, "active call"), count(int(l.Connections), "connection"))
	}
	if t.series.known() {
		totals = append(totals, t.series.rate(t.series.Total)+" calls/s")
	}
	if p := t.state.Process; p != nil {
		totals = append(totals, fmt.Sprintf("%d MiB", p.Memory>>20))
	}
	if on.hint != "" {
		totals = append(totals, on.hint)
	}
	out += on.line(strings.Join(totals, ", ")) + "\n"
	if t.by.keys {
		out += on.line(topKeys)
	}
	out += "\n"

	var reasons []string
	for i := range t.state.Servers {
		if s := &t.state.Servers[i]; s.Reason != "" {
			reasons = append(reasons, on.line(s.Name+": "+strings.TrimPrefix(s.Reason, "server "+s.Name+": "))+"\n")
		}
	}
	servers, active, failures := len(t.state.Servers), len(t.calls.Active), len(t.calls.Failures)
	if on.rows > 0 {
		rows := max(1, on.rows-4)
		reasons = reasons[:min(len(reasons), rows/6)]
		servers, active, failures = fit(rows-len(reasons), servers, active, failures)
	}
	out += t.servers(on, servers) + strings.Join(reasons, "")
	if active > 0 {
		out += "\nactive calls:\n" + list(t.calls.Active[:active], func(one *topCall) string { return age(t.At, one.Began) }, on)
	}
	if failures > 0 {
		out += "\nlast failures:\n" + list(t.calls.Failures[:failures], func(one *topCall) string { return fmt.Sprintf("%.0f ms", one.Took) }, on)
	}
	return out
}

// listHead is the number of lines above a list of calls.
const listHead = 3

// fit returns how many servers, active calls and failures fit into rows. Each list gets a part of the rows.
func fit(rows, servers, active, failures int) (int, int, int) {
	want := func(n int) int { // the minimum for a list that lacks room
		if n == 0 {
			return 0
		}
		return listHead + min(n, 2)
	}
	servers = min(servers, max((rows+1)/2, rows-want(active)-want(failures)))
	rows -= servers
	active = max(0, min(active, rows-listHead-want(failures)))
	if active > 0 {
		rows -= listHead + active
	}
	return servers, active, max(0, min(failures, rows-listHead))
}

// servers formats the table of servers, with at most most lines below the table's heading.
func (v *topView) servers(on screen, most int) string {
	if most == 0 {
		return ""
	}
	t := v.state.table(on, v.At, "SERVER", "STATE", "CALLS/S", "FAILED", "TOOL ERR", "LAST 15 MIN", "ACTIVE", "QUEUED", "P50", "P95", "SESSIONS", "CONNECTIONS", "MEMORY", "CPU", "TRANSPORT", "REVISION")
	t.Drop = []string{"REVISION", "TRANSPORT", "CPU", "CONNECTIONS", "P50", "MEMORY", "SESSIONS", "QUEUED", "P95", "LAST 15 MIN", "ACTIVE", "TOOL ERR", "FAILED", "CALLS/S"}
	v.sort()
	for i, head := range t.Head {
		if sorted := sortColumns[v.by.column].head; head == sorted && v.by != (order{keys: v.by.keys}) {
			mark := map[bool]string{false: "↓", true: "↑"}[v.by.reverse]
			t.Head[i] += mark
			if at := slices.Index(t.Drop, head); at >= 0 {
				t.Drop = slices.Delete(t.Drop, at, at+1) // the column stays in sight
			}
		}
	}
	shown := len(v.state.Servers)
	if shown > most {
		shown = most - 1 // a line says how many more there are
	}
	for i := range shown {
		s := &v.state.Servers[i]
		memory, cpu, queued, failed, toolErrors := "", "", "", "", ""
		if s.RSS > 0 {
			memory, cpu = fmt.Sprintf("%d MiB", s.RSS>>20), (time.Duration(s.CPU) * time.Millisecond).Round(100*time.Millisecond).String()
		}
		if s.Queued > 0 {
			queued = fmt.Sprint(s.Queued)
		}
		c := v.columns(s)
		if v.series.known() {
			failed, toolErrors = fmt.Sprintf("%.0f", sum(c.Errors)), fmt.Sprintf("%.0f", sum(c.ToolErrors))
		}
		addRow(&t, on.name(s.Name), word(s, v.At), v.series.rate(c), failed, toolErrors, v.series.spark(c), fmt.Sprint(s.Calls), queued, millis(s.P50), millis(s.P95), fmt.Sprint(s.Sessions), fmt.Sprint(s.Connections), memory, cpu, s.Transport, s.Revision)
	}
	out := t.Format("", on.width, nil)
	if left := len(v.state.Servers) - shown; left > 0 {
		out += on.line(fmt.Sprintf("and %d more", left)) + "\n"
	}
	return out
}

func millis(ms *float64) string {
	if ms == nil {
		return ""
	}
	return fmt.Sprintf("%.0f ms", *ms)
}

func list(all []topCall, took func(*topCall) string, on screen) string {
	t := terminal.Table{Head: []string{"BEGAN", "SERVER", "CALL", "CALLER", "SESSION", "TOOK", "OUTCOME", "ERROR"}, Drop: []string{"SESSION", "CALLER", "BEGAN", "TOOK"}}
	for i := range all {
		one := &all[i]
		addRow(&t, one.Began.Local().Format(time.TimeOnly), on.name(one.Server), strings.TrimSpace(one.Method+" "+one.Name), one.Principal, one.Session, took(one), one.Outcome, one.Error)
	}
	return t.Format("", on.width, nil)
}

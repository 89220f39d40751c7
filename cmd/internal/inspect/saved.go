package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/flags"
	"github.com/mcp-bridge/bridge/config"
)

// saved is a call in a file that the console has exported.
type saved struct {
	Name      string          `json:"name"`
	Server    string          `json:"server"` // "*" is the aggregate
	Tool      string          `json:"tool"`
	Revision  string          `json:"revision"` // for the client in the console
	Arguments json.RawMessage `json:"arguments"`
	Expect    struct {
		IsError bool                       `json:"isError"`
		Within  string                     `json:"within"`
		Equals  map[string]json.RawMessage `json:"equals"` // by path in the result
	} `json:"expect"`
	within time.Duration // 0 means no limit
}

// together is the name of the aggregate in such a file.
const together = "*"

// readSaved reads the calls of a file. Its errors have code Usage.
func readSaved(file string) ([]saved, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, exit.Usagef("--saved: %w", err)
	}
	var doc struct {
		Calls []json.RawMessage `json:"calls"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil || d.More() {
		return nil, exit.Usagef(`%s:%d: it must be an object with a list of "calls", as the console exports it%s`, file, lineOf(text, int(d.InputOffset())), because(err))
	}
	if len(doc.Calls) == 0 {
		return nil, exit.Usagef(`%s: there are no "calls"`, file)
	}
	all, from := make([]saved, len(doc.Calls)), 0
	for i, raw := range doc.Calls {
		at := from + bytes.Index(text[from:], raw) // the raw calls follow each other in the text
		from = at + len(raw)
		if err := all[i].read(raw); err != nil {
			return nil, exit.Usagef("%s:%d: call %d: %w", file, lineOf(text, at), i+1, err)
		}
	}
	return all, nil
}

// lineOf returns the line number of an offset.
func lineOf(text []byte, at int) int { return 1 + bytes.Count(text[:min(at, len(text))], []byte("\n")) }

// because formats a reason as the end of a message.
func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + strings.TrimPrefix(err.Error(), "json: ")
}

func (s *saved) read(raw json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	var members map[string]json.RawMessage
	switch {
	case s.Tool == "":
		return errors.New(`"tool" is missing: the name of the tool to call`)
	case s.Arguments != nil && (json.Unmarshal(s.Arguments, &members) != nil || members == nil):
		return errors.New(`"arguments" must be an object`)
	case s.Expect.Within != "":
		within, err := time.ParseDuration(s.Expect.Within)
		if err != nil || within <= 0 {
			return fmt.Errorf(`"within" is %q: must be a time such as "500ms" or "2s"`, s.Expect.Within)
		}
		s.within = within
	}
	if s.Arguments == nil {
		s.Arguments = json.RawMessage("{}")
	}
	return nil
}

// verdict is the outcome of a saved call.
type verdict struct {
	Name   string          `json:"name,omitempty"`
	Server string          `json:"server"`
	Tool   string          `json:"tool"`
	OK     bool            `json:"ok"`
	Took   float64         `json:"took_ms"`
	Faults []string        `json:"faults,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// replay makes the calls of a file.
func (c *clientFlags) replay(cmd *cobra.Command, args []string, file string, noCheck bool) error {
	con := newConsole(cmd.InOrStdin(), c.Stdout, c.Stderr, c.Terminal)
	err := c.replayed(cmd, args, con, file, noCheck)
	if err != nil && c.json {
		return c.jsonError(con, err)
	}
	return err
}

func (c *clientFlags) replayed(cmd *cobra.Command, args []string, con *console, file string, noCheck bool) error {
	for _, name := range []string{"json", "output-dir", "dry-run"} {
		if c.changed(name) {
			return exit.Usagef("--%s is of no use with --saved, whose file has the calls", name)
		}
	}
	if c.timeout <= 0 {
		return exit.Usagef("--timeout must be longer than 0")
	}
	roots, err := rootsOf(c.roots)
	if err != nil {
		return err
	}
	calls, err := readSaved(file)
	if err != nil {
		return err
	}
	groups, err := c.grouped(cmd, args, calls)
	if err != nil {
		return err
	}
	ctx, failed, all := cmd.Context(), 0, make([]verdict, 0, len(calls))
	for _, g := range groups { // one connection for all calls of a server
		client, err := c.connect(ctx, g.settings, g.name, con, roots)
		for _, one := range g.calls {
			v := verdict{
				Name:   one.Name,
				Server: one.Server,
				Tool:   one.Tool,
			}
			if err == nil {
				client.judge(ctx, one, noCheck, &v)
			} else {
				v.Faults = []string{c.explain(ctx, err).Error()}
			}
			if ctx.Err() != nil {
				break
			}
			if v.OK = len(v.Faults) == 0; !v.OK {
				failed++
			}
			if all = append(all, v); !c.json {
				if _, err := fmt.Fprintln(con.out, con.text(v.String())); err != nil {
					return err
				}
			}
		}
		if err == nil {
			client.close()
		}
		if ctx.Err() != nil {
			return c.explain(ctx, ctx.Err())
		}
	}
	if c.json {
		doc, err := json.Marshal(map[string]any{"calls": all, "failed": failed})
		if err == nil {
			err = con.printJSON(doc)
		}
		if err != nil || failed == 0 {
			return err
		}
		return exit.With(exit.Answer, nil)
	}
	if failed > 0 {
		return exit.With(exit.Answer, fmt.Errorf("%d of %d calls did not meet their expectations", failed, len(all)))
	}
	return nil
}

// group holds the calls of one server, in the order of the file.
type group struct {
	settings *config.Config
	name     string
	calls    []*saved
}

// grouped groups calls by server: by the servers of the file, or into one group for the server of the command line.
func (c *clientFlags) grouped(cmd *cobra.Command, args []string, calls []saved) ([]group, error) {
	if len(args) > 0 || cmd.ArgsLenAtDash() >= 0 {
		t, rest, err := c.split(cmd, args)
		if err != nil {
			return nil, err
		}
		if len(rest) > 0 {
			return nil, exit.Usagef("%q is of no use with --saved, whose file has the calls", rest[0])
		}
		g := group{}
		if g.settings, g.name, err = c.resolve(cmd.Context(), t); err != nil {
			return nil, err
		}
		for i := range calls {
			g.calls = append(g.calls, &calls[i])
		}
		return []group{g}, nil
	}
	if _, err := c.target.Kind(cmd.Context(), nil, false); err != nil {
		return nil, err
	}
	var all []group
	for i := range calls {
		one := &calls[i]
		if one.Server == "" {
			return nil, exit.Usagef(`call %d: "server" is missing: the name of a server, or %q for all as one; or name a target in the command`, i+1, together)
		}
		at := slices.IndexFunc(all, func(g group) bool { return g.calls[0].Server == one.Server })
		if at < 0 {
			g := group{name: one.Server}
			names := []string{g.name}
			if g.name == together {
				g.name, names = "", nil
			}
			var err error
			if g.settings, err = c.target.Config(flags.OfFile, names); err == nil {
				err = c.tune(g.settings)
			}
			if err != nil {
				return nil, err
			}
			at, all = len(all), append(all, g)
		}
		all[at].calls = append(all[at].calls, one)
	}
	return all, nil
}

// judge makes a call and records the outcome.
func (c *client) judge(ctx context.Context, s *saved, noCheck bool, v *verdict) {
	raw, failed, took, err := c.answer(ctx, &try{
		tool:    s.Tool,
		args:    s.Arguments,
		noCheck: noCheck,
	})
	v.Took, v.Result = float64(took.Microseconds())/1000, raw
	fault := func(format string, args ...any) { v.Faults = append(v.Faults, fmt.Sprintf(format, args...)) }
	if err != nil {
		fault("%s", c.flags.explain(ctx, c.reason(err)).Error())
		return
	}
	switch {
	case failed && !s.Expect.IsError:
		fault("the tool answered with an error: %s", clip(gjson.GetBytes(raw, "content.0.text").String()))
	case !failed && s.Expect.IsError:
		fault("the tool answered without an error, and one is expected")
	}
	if s.within > 0 && took > s.within {
		fault("it took %v, and is to take %v at most", took.Round(time.Millisecond), s.within)
	}
	for _, path := range slices.Sorted(maps.Keys(s.Expect.Equals)) {
		want := s.Expect.Equals[path]
		switch got := gjson.GetBytes(raw, path); {
		case !got.Exists():
			fault("%s is not there, and is to be %s", path, clip(string(want)))
		case !sameJSON(got.Raw, string(want)):
			fault("%s is %s, and is to be %s", path, clip(got.Raw), clip(string(want)))
		}
	}
}

// maxShown bounds the bytes of a value in a message.
const maxShown = 200

func clip(s string) string {
	if len(s) > maxShown {
		return strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return s
}

// sameJSON reports whether two texts are the same JSON value. Two numbers are equal if their digits or their exact
// floats are equal.
func sameJSON(a, b string) bool {
	var values [2]any
	for i, text := range []string{a, b} {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if d.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(plain(values[0]), plain(values[1]))
}

// plain converts equal numbers to the same form.
func plain(v any) any {
	const exact = 1 << 53 // up to here, floats hold integers exactly
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); err == nil && -exact < f && f < exact {
			return f
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}

// String formats a verdict for people.
func (v *verdict) String() string {
	word, name := "ok    ", ""
	if !v.OK {
		word = "FAILED"
	}
	if v.Name != "" && v.Name != v.Tool {
		name = ": " + v.Name
	}
	text := fmt.Sprintf("%s  %s %s%s (%.0f ms)", word, v.Server, v.Tool, name, v.Took)
	for _, fault := range v.Faults {
		text += "\n        " + strings.ReplaceAll(fault, "\n", "\n        ")
	}
	return text
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/glob"
	"github.com/mcp-bridge/bridge/internal/sanitize"
	"github.com/mcp-bridge/bridge/internal/validate"
)

// examine examines the HTTP APIs of a file. It reports an API's fault with the line of the API, together with the
// file's own faults. If tools is not empty, it is a pattern for names of tools, which sums then explains. lost names
// the operations that cannot be offered.
func examine(ctx context.Context, file, tools string, c *config.Config, faults config.Faults) (warnings []string, sums map[string]string, lost, err error) {
	sums = map[string]string{}
	found := tools == ""
	for i := range c.Servers {
		s := &c.Servers[i]
		if s.Rest == nil {
			continue
		}
		report, err := s.Rest.Inspect(ctx, s.Name, server.RestOptions(s, int(c.MaxMessage), nil))
		if err != nil {
			faults = append(faults, c.FaultsOf(s.Name, err)...)
			continue
		}
		for _, w := range report.Warnings {
			warnings = append(warnings, w.String())
		}
		warnings = append(warnings, idle(filepath.Base(file), c, s, report.Names)...)
		if n := len(report.Lost); n > 0 {
			lost = errors.Join(lost, fmt.Errorf("server %q: rest: %s cannot be used, as the warnings say: %s; mend the document, or leave them out by expose",
				s.Name, count(n, "operation"), some(report.Lost, 10)))
		}
		if report.Empty {
			lost = errors.Join(lost, fmt.Errorf("server %q: rest: the document has no operations: name another one in openapi, or leave it out", s.Name))
		}
		sums[s.Name] = restSum(report)
		if tools != "" {
			for _, one := range report.Explain(filepath.Base(file), func(name string) bool { return glob.Match(tools, name) }, c.Redact) {
				sums[s.Name] += "\n" + explained(&one)
				found = true
			}
		}
	}
	if len(faults) > 0 {
		return nil, nil, lost, exit.Usagef("the configuration has faults:\n%w", faults.Sorted())
	}
	if !found {
		return nil, nil, nil, exit.Usagef("no tool of an HTTP API is called %q, and no operation or key of one that mcp-bridge check has read", tools)
	}
	return warnings, sums, lost, nil
}

// idle warns of settings that choose or change tools but match no tool of the API.
func idle(file string, c *config.Config, s *config.Server, names []string) (warnings []string) {
	if len(names) == 0 {
		return nil
	}
	for _, one := range s.Tools.Idle(names) {
		key, said, _ := strings.Cut(one, ".")
		at, _ := c.Origin(s.Name, "tools."+key)
		text := fmt.Sprintf("%s:%d: server %q: tools: %s: %q is about no tool", file, at.Line, s.Name, key, said)
		if near := validate.Nearest(said, names); near != "" {
			text += ": did you mean " + near + "?"
		}
		warnings = append(warnings, text)
	}
	return warnings
}

// some lists the first names, and the number of the others.
func some(names []string, most int) string {
	if n := len(names) - most; n > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ")
}

// explained returns the lines of a tool with their origins.
func explained(e *rest.Explained) string {
	title := "\n  " + e.Name
	if e.Key != "" && e.Key != e.Name {
		title += " (" + e.Key + ")"
	}
	t := terminal.Table{Head: make([]string, 3)}
	for _, l := range e.Lines {
		t.Add(l.What, l.From, l.Text)
	}
	_, rows, _ := strings.Cut(t.Format("    ", 0, nil), "\n") // without the heading
	return sanitize.Text(title + "\n" + strings.TrimRight(rows, "\n"))
}

// restSum describes the tools of an API in a few words.
func restSum(r *rest.Report) string {
	if r.Unread {
		return "its document is at a URL, and was not read" + r.Advice
	}
	sum := fmt.Sprintf("%s, %d bytes in a list, mode: %s", count(r.Tools, "tool"), r.Size, r.Mode)
	if r.OutputsOmitted > 0 {
		sum += fmt.Sprintf(", without output schemas of %d bytes", r.OutputsOmitted)
	}
	if r.Mode == rest.ModeSearch {
		sum = fmt.Sprintf("%s, found by search (mode: search; a list of all would have %d bytes)", count(r.Tools, "tool"), r.Size)
	}
	if r.CatalogUnread && r.Tools == 0 {
		sum = "its catalogue is no file, and was not read"
	} else if r.CatalogUnread {
		sum += ", without those of its catalogue, which is no file and was not read"
	}
	if r.Resources > 0 {
		sum += ", " + count(r.Resources, "resource")
	}
	if len(r.Warnings) > 0 {
		sum += ", " + count(len(r.Warnings), "warning")
	}
	return sum
}

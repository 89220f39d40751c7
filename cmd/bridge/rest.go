package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/server"
	"github.com/mcp-bridge/bridge/config"
)

// inspect reports what becomes of the HTTP APIs of a file. What is wrong with
// one of them is told with its line, as the file's own faults are.
func inspect(ctx context.Context, file string, c *config.Config) (warnings []string, sums map[string]string, err error) {
	sums = map[string]string{}
	var faults config.Faults
	for i := range c.Servers {
		s := &c.Servers[i]
		if s.Rest == nil {
			continue
		}
		where := fmt.Sprintf("server %q: rest: ", s.Name)
		report, err := s.Rest.Inspect(ctx, s.Name, server.RestOptions(s, int(c.MaxMessage), nil))
		if wrong, ok := errors.AsType[rest.Faults](err); ok {
			for _, f := range wrong {
				faults = append(faults, config.Fault{File: file, Line: f.Line, Message: where + f.String()})
			}
			continue
		} else if err != nil {
			faults = append(faults, config.Fault{File: file, Message: where + err.Error()})
			continue
		}
		for _, w := range report.Warnings {
			warnings = append(warnings, w.String())
		}
		sums[s.Name] = restSum(report)
	}
	if len(faults) > 0 {
		return nil, nil, usageError{fmt.Errorf("the configuration has faults:\n%w", faults)}
	}
	return warnings, sums, nil
}

// restSum says in short what becomes of an API.
func restSum(r *rest.Report) string {
	if r.Unread {
		return "its document is at a URL, and was not read"
	}
	sum := fmt.Sprintf("%s, %d bytes in a list, mode: %s", count(r.Tools, "tool"), r.Size, r.Mode)
	if r.Uncounted && r.Tools == 0 {
		sum = "its catalogue is no file, and was not read"
	} else if r.Uncounted {
		sum += ", without those of its catalogue, which is no file and was not read"
	}
	if len(r.Warnings) > 0 {
		sum += ", " + count(len(r.Warnings), "warning")
	}
	return sum
}

// dryRun prints the request that a call would send.
func (f *clientFlags) dryRun(cmd *cobra.Command, args []string, t *try) error {
	at, rest, err := f.split(cmd, args)
	if err != nil {
		return err
	}
	if err := t.prepare(cmd, f, rest); err != nil {
		return err
	}
	c, _, err := at.resolve()
	if err != nil {
		return err
	}
	if c.Servers[0].Rest == nil {
		return usageError{errors.New("--dry-run is for HTTP APIs, which are servers of the kind rest in the configuration file: for others, a call is no more than a message to them")}
	}
	return t.plan(cmd.Context(), f, c, f.stdout)
}

// plan prints the request.
func (t *try) plan(ctx context.Context, f *clientFlags, c *config.Config, out io.Writer) error {
	s := &c.Servers[0]
	logs := *f.log
	if !f.verbose && !f.set.Changed("log-level") {
		logs.level = "error"
	}
	log, err := logs.logger(f.stderr)
	if err != nil {
		return err
	}
	a, err := rest.New(s.Name, *s.Rest, server.RestOptions(s, int(c.MaxMessage), log))
	if err != nil {
		return err
	}
	defer a.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errSilent)
	defer cancel()
	list, err := a.Tools(ctx)
	if err != nil {
		return exitError{exitServer, err}
	}
	name := t.tool
	for own, seen := range s.Tools.Rename {
		if seen == t.tool {
			name = own
		}
	}
	tool, err := find("tool", gjson.ParseBytes(list).Array(), name)
	if err != nil && !t.noCheck {
		return err
	}
	args := t.args
	if args == nil {
		if args, err = (schema{tool.Get("inputSchema")}).build(t.pairs); err != nil {
			return err
		}
	}
	text, err := a.Plan(ctx, name, args)
	if err != nil {
		return usageError{err}
	}
	_, err = fmt.Fprintln(out, strings.TrimRight(text, "\n"))
	return err
}

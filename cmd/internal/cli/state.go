package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge/server/status"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// bridgeState is the state of a running bridge, as in /readyz and the API.
type bridgeState status.Overview

// failing is the state of a server that does not work.
const failing = "failing"

// badness is the order of servers for people: 0 is failing, 1 is restricted, and 2 is working.
func badness(s *status.Server) int {
	switch {
	case s.State == failing:
		return 0
	case s.Drained != nil || s.Breaker == "open" || s.Breaker == "half-open":
		return 1
	}
	return 2
}

// word describes the state of a server in a word.
func word(s *status.Server, now time.Time) string {
	text := s.State
	switch {
	case s.Forced != nil:
		text = "forced " + s.Forced.Breaker
	case s.Breaker == "open":
		text = "circuit open"
		if s.RetryAt != nil && s.RetryAt.After(now) {
			text += " " + age(*s.RetryAt, now)
		}
	case s.Breaker == "half-open":
		text = "circuit half-open"
	}
	switch {
	case s.Drained == nil:
		return text
	case badness(s) == 0:
		return text + ", drained"
	}
	return "drained"
}

// sentence describes the state of the bridge in a sentence. tone is a color.
func (b *bridgeState) sentence() (text, tone string) {
	var bad [3][]string // names by badness
	var drained []string
	for i := range b.Servers {
		switch s := &b.Servers[i]; {
		case badness(s) == 1 && s.Drained != nil:
			drained = append(drained, s.Name)
		default:
			bad[badness(s)] = append(bad[badness(s)], s.Name)
		}
	}
	of := func(some []string, what string) string {
		who := fmt.Sprintf("%d of %d servers ", len(some), len(b.Servers))
		switch {
		case len(b.Servers) == 1:
			who = "The server is "
		case len(some) == len(b.Servers):
			who = fmt.Sprintf("All %d servers ", len(some))
		}
		return who + what + ": " + strings.Join(some, ", ")
	}
	reason := ""
	if b.Reason != "" {
		reason = ": " + b.Reason
	}
	switch {
	case b.Drained != nil || b.Draining:
		return "The bridge is draining" + reason, yellow
	case len(bad[0]) > 0:
		if len(bad[0]) == len(b.Servers) || !b.Ready {
			return of(bad[0], failing), red
		}
		return of(bad[0], failing), yellow
	case len(b.Servers) == 0 && b.Ready:
		return "No servers", yellow
	case !b.Ready:
		return "Not ready" + reason, red
	case len(bad[1]) > 0:
		return of(bad[1], "refused by the circuit breaker"), yellow
	case len(drained) > 0:
		return of(drained, "drained"), yellow
	case len(b.Servers) == 1:
		return "The server is working", green
	}
	return fmt.Sprintf("All %d servers working", len(b.Servers)), green
}

// screen is the place for a text. Without a terminal, it has no limits.
type screen struct {
	width, rows int // 0 means no limit
	color       bool
	hint        string // what the user can do
}

// red, yellow and green are codes of colors.
const red, yellow, green = "31", "33", "32"

func (s screen) paint(color, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (s screen) line(text string) string {
	text = terminal.OneLine(sanitize.Text(text))
	if s.width > 0 {
		text = terminal.Cut(text, s.width)
	}
	return text
}

// name returns the name of a server, cut so that there is room for the other columns.
func (s screen) name(text string) string {
	if text = sanitize.Text(text); s.width > 0 {
		text = terminal.Cut(text, max(s.width/4, 8))
	}
	return text
}

// head returns the sentence about the bridge, in color.
func (b *bridgeState) head(on screen) string {
	text, color := b.sentence()
	return on.paint(color, on.line(text)) + "\n"
}

// table returns an empty table of servers. Its column STATE has colors.
func (b *bridgeState) table(on screen, now time.Time, head ...string) terminal.Table {
	slices.SortStableFunc(b.Servers, func(s, y status.Server) int { return cmp.Compare(badness(&s), badness(&y)) })
	colors := map[string]string{}
	for i := range b.Servers {
		s := &b.Servers[i]
		colors[word(s, now)] = [...]string{red, yellow, green}[badness(s)]
	}
	return terminal.Table{Head: head, Paint: func(column, cell string) string {
		if color := colors[cell]; column == "STATE" && color != "" {
			return on.paint(color, cell)
		}
		return cell
	}}
}

// addRow adds a row to a table. Servers and clients may choose the text of cells, so addRow makes control characters
// visible.
func addRow(t *terminal.Table, cells ...string) {
	for i := range cells {
		cells[i] = sanitize.Text(cells[i])
	}
	t.Add(cells...)
}

// status formats the output of the command status.
func (b *bridgeState) status(now time.Time, on screen) string {
	out := b.head(on)
	if l := b.Whole; l != nil {
		out += on.line(strings.Join([]string{count(l.Sessions, "session"), count(l.Calls, "active call"), count(l.Subscriptions, "subscription"), count(int(l.Connections), "connection")}, ", ")) + "\n"
	}
	if s := b.Config; s != nil {
		out += on.line("configuration "+s.Hash+", read "+age(now, s.LoadedAt)+" ago") + "\n"
		if s.LastError != "" && s.LastErrorAt != nil {
			out += on.paint(red, on.line("not reloaded "+age(now, *s.LastErrorAt)+" ago: "+s.LastError)) + "\n"
		}
		if len(s.Pending) > 0 {
			out += on.line("after a restart: "+strings.Join(s.Pending, ", ")) + "\n"
		}
	}
	if text := b.Missing(); text != "" {
		out += on.paint(yellow, on.line(text)) + "\n"
	}
	if b.TLS != nil && b.TLS.LastError != "" {
		out += on.paint(red, on.line(b.TLS.LastError+" (until "+b.TLS.Until.UTC().Format(time.RFC3339)+")")) + "\n"
	}
	t := b.table(on, now, "SERVER", "STATE", "SINCE", "TRANSPORT", "REVISION", "SESSIONS", "ACTIVE", "CONNECTIONS", "RESTARTS", "CACHE", "LAST ERROR")
	t.Drop = []string{"CACHE", "REVISION", "CONNECTIONS", "RESTARTS", "SESSIONS", "TRANSPORT", "SINCE", "ACTIVE"}
	for i := range b.Servers {
		s := &b.Servers[i]
		since, cache, last := "", "", s.Reason
		if s.Since != nil {
			since = age(now, *s.Since)
		}
		if c := s.Cache; c != nil {
			cache = fmt.Sprintf("%d, %s old", c.Entries, c.Oldest)
			if c.Stale {
				cache += ", stale"
			}
		}
		if s.LastError != "" {
			last = s.LastError
			if s.LastErrorAt != nil {
				last = age(now, *s.LastErrorAt) + " ago: " + last
			}
		}
		addRow(&t, on.name(s.Name), word(s, now), since, s.Transport, s.Revision, fmt.Sprint(s.Sessions), fmt.Sprint(s.Calls), fmt.Sprint(s.Connections), fmt.Sprint(s.Restarts), cache, last)
	}
	if len(b.Servers) == 0 {
		return out
	}
	return out + "\n" + t.Format("", on.width, nil)
}

package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/visible"
	"github.com/mcp-bridge/bridge/cmd/bridge/exit"
	"github.com/mcp-bridge/bridge/cmd/bridge/inspect/arguments"
	"github.com/mcp-bridge/bridge/cmd/bridge/terminal"
)

// status shows on stderr what the server says while a request is under way:
// its progress, on a terminal in one line that is written anew, and with
// --verbose its log.
type status struct {
	*console
	quiet, verbose bool

	mu    sync.Mutex // guards the rest, and keeps lines whole: it is held while one is written
	shown bool       // a line of progress stands on the terminal
	held  bool       // the user is being asked
}

// hear takes a notification.
func (s *status) hear(method string, params json.RawMessage) {
	switch method {
	case "notifications/progress":
		s.progress(progressText(gjson.ParseBytes(params)))
	case "notifications/message":
		if s.verbose {
			s.print(logText(gjson.ParseBytes(params)) + "\n")
		}
	}
}

// progress shows how far the request has come.
func (s *status) progress(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quiet || s.held {
		return
	}
	if !s.errTerm {
		fmt.Fprintln(s.err, text)
		return
	}
	s.shown = true
	fmt.Fprint(s.err, "\r"+terminal.Cut(text, s.errWidth-1)+"\x1b[K")
}

// progressText is one report: what is done of how much, and what the server
// says about it.
func progressText(p gjson.Result) string {
	text := terminal.OneLine(p.Get("progress").Raw)
	if total := p.Get("total"); total.Float() > 0 {
		percent := 100 * p.Get("progress").Float() / total.Float()
		text += "/" + terminal.OneLine(total.Raw) + " (" + strconv.FormatFloat(min(max(percent, 0), 100), 'f', 0, 64) + "%)"
	}
	if m := terminal.OneLine(p.Get("message").String()); m != "" {
		text += " " + m
	}
	return visible.Text(text)
}

// logText is one message of the server's log.
func logText(p gjson.Result) string {
	text := "[" + p.Get("level").String() + "] "
	if name := p.Get("logger").String(); name != "" {
		text += name + ": "
	}
	return visible.Text(terminal.OneLine(text + arguments.Plain(p.Get("data").Raw)))
}

// print writes text to stderr, on lines of its own.
func (s *status) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	_, _ = io.WriteString(s.err, text) // nobody could be told
}

// clear takes the line of progress away.
func (s *status) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
}

// hold keeps progress from being shown, until it is called with false.
func (s *status) hold(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	s.held = yes
}

// holds reports whether the user is being asked.
func (s *status) holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (s *status) wipe() {
	if s.shown {
		fmt.Fprint(s.err, "\r\x1b[K")
		s.shown = false
	}
}

// emit writes a command's output. Text of a server's in it must have gone
// through console.text.
func (c *console) emit(text string) error {
	if _, err := io.WriteString(c.out, text); err != nil {
		return exit.With(exit.Failure, fmt.Errorf("write the output: %w", err))
	}
	return nil
}

// printJSON prints a JSON document: on a terminal with line breaks, otherwise
// with the bytes that it has.
func (c *console) printJSON(raw []byte) error {
	if c.outTerm {
		return c.emit(visible.Text(indented(raw)) + "\n")
	}
	return c.emit(strings.TrimRight(string(raw), "\n") + "\n")
}

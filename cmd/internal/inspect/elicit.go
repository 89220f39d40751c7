package inspect

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/inspect/arguments"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// asker asks the user the server's questions (elicitation) on stderr and stdin, one at a time. Without a terminal, the
// answer is cancel.
type asker struct {
	*console
	status *status
	turn   chan struct{} // holds a token while a question is open
	lines  chan string   // the user's input; closed at the end of stdin; nil until the first question
	done   chan struct{} // closed after the last question
}

func newAsker(c *console, s *status) *asker {
	return &asker{
		console: c,
		status:  s,
		turn:    make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
}

// close ends the reading of input. No question may be open.
func (a *asker) close() { close(a.done) }

// errDecline and errCancel are the reasons why a question was not answered.
var (
	errDecline = errors.New("declined")
	errCancel  = errors.New("cancelled")
)

// answer asks the user and returns an ElicitResult, or nil if ctx ends first. params are raw, because only the text has
// the fields of a form in their order.
func (a *asker) answer(ctx context.Context, params json.RawMessage) json.RawMessage {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	a.status.hold(true)
	defer func() {
		a.status.hold(false)
		<-a.turn
	}()
	q := gjson.ParseBytes(params)
	if !a.asks() {
		a.status.print(fmt.Sprintf("the server asks: %s\nthere is no terminal to answer on: the answer is cancel\n", sanitize.Text(q.Get("message").String())))
		return json.RawMessage(`{"action":"cancel"}`)
	}
	content, err := a.ask(ctx, q)
	switch {
	case ctx.Err() != nil:
		a.status.print("\nthe question is not open any more\n")
		return nil
	case errors.Is(err, errDecline):
		return json.RawMessage(`{"action":"decline"}`)
	case err != nil:
		return json.RawMessage(`{"action":"cancel"}`)
	case content == "":
		return json.RawMessage(`{"action":"accept"}`)
	}
	return json.RawMessage(`{"action":"accept","content":` + content + `}`)
}

func (a *asker) ask(ctx context.Context, q gjson.Result) (content string, err error) {
	a.status.print("\nThe server asks: " + sanitize.Text(q.Get("message").String()) + "\n")
	if q.Get("mode").String() == "url" {
		return "", a.visit(ctx, q.Get("url").String())
	}
	s := arguments.Of(q.Get("requestedSchema"))
	for {
		content, err := a.form(ctx, s)
		if err != nil {
			return "", err
		}
		switch key, err := a.choose(ctx, "Send this? [y]es, [n]o, [e]dit: ", "yne"); {
		case err != nil:
			return "", err
		case key == 'y':
			return content, nil
		case key == 'n':
			return "", errDecline
		}
	}
}

// visit asks whether the user agrees to visit an address. It shows the full address and never opens it (2025-11-25,
// client/elicitation, URL mode).
func (a *asker) visit(ctx context.Context, address string) error {
	host := "an address without a host"
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		host = u.Host
	}
	a.status.print(fmt.Sprintf("It wants you to visit %s:\n  %s\n", sanitize.Text(host), sanitize.Text(address)))
	key, err := a.choose(ctx, "Agree, and open it in your browser yourself? [y]es, [n]o: ", "yn")
	if err == nil && key == 'n' {
		return errDecline
	}
	return err
}

// choose asks for one of the letters.
func (a *asker) choose(ctx context.Context, prompt, letters string) (byte, error) {
	for {
		text, err := a.line(ctx, prompt)
		if err != nil {
			return 0, err
		}
		text = strings.ToLower(strings.TrimSpace(text))
		if text != "" && strings.Contains(letters, text[:1]) {
			return text[0], nil
		}
	}
}

// line asks for a line. The end of stdin means cancel.
func (a *asker) line(ctx context.Context, prompt string) (string, error) {
	if a.lines == nil {
		a.lines = make(chan string)
		go a.read()
	}
	a.status.print(prompt)
	select {
	case text, ok := <-a.lines:
		switch {
		case !ok:
			return "", errCancel
		case text == "!decline":
			return "", errDecline
		case text == "!cancel":
			return "", errCancel
		}
		return text, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// read sends the user's input to lines. A read from a terminal cannot be interrupted, so after the last question read
// ends with stdin or the process.
func (a *asker) read() {
	defer close(a.lines)
	in := bufio.NewScanner(a.in)
	for in.Scan() {
		select {
		case a.lines <- in.Text():
		case <-a.done:
			return
		}
	}
}

// form asks for one field after another and returns the fields as an object.
func (a *asker) form(ctx context.Context, s arguments.Schema) (string, error) {
	fields := s.Arguments()
	if len(fields) > 0 {
		a.status.print("(Enter takes the default or leaves a field out; !decline and !cancel end the questions)\n")
	}
	var parts []string
	for _, f := range fields {
		value, err := a.field(ctx, s, f)
		if err != nil {
			return "", err
		}
		if value != "" {
			parts = append(parts, arguments.Quote(f.Name)+":"+value)
		}
	}
	return "{" + strings.Join(parts, ",") + "}", nil
}

// field asks for a field until the input is valid. It returns the field as JSON, or "" if the user leaves it out.
func (a *asker) field(ctx context.Context, s arguments.Schema, f arguments.Argument) (string, error) {
	choices := s.Options(f.Schema)
	text := cmp.Or(title(f.Schema), f.Name)
	if f.About != "" {
		text += ": " + f.About
	}
	text += " (" + s.TypeName(f.Schema)
	if f.Required {
		text += ", required"
	}
	text += ")\n"
	for i, o := range choices {
		text += fmt.Sprintf("  %d. %s\n", i+1, terminal.OneLine(o.Label))
	}
	standard := f.Schema.Get("default")
	prompt := "> "
	if standard.Exists() {
		prompt = "[" + terminal.OneLine(arguments.Plain(standard.Raw)) + "] > "
	}
	a.status.print(sanitize.Text(text))
	for {
		line, err := a.line(ctx, sanitize.Text(prompt))
		if err != nil {
			return "", err
		}
		switch {
		case line != "":
		case standard.Exists():
			return standard.Raw, nil
		case !f.Required:
			return "", nil
		default:
			a.status.print("this is required\n")
			continue
		}
		value, err := s.Reply(f.Schema, choices, line)
		if err == nil {
			return value, nil
		}
		a.status.print(sanitize.Text(err.Error()) + "\n")
	}
}

// codeVisit is the error code of a call before which the user must visit addresses (2025-11-25,
// URLElicitationRequiredError).
const codeVisit = -32042

// visits adds the addresses to an error with codeVisit.
func (c *client) visits(err error) error {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || e.Code != codeVisit || c.flags.json {
		return err
	}
	text := ""
	for _, q := range gjson.GetBytes(e.Data, "elicitations").Array() {
		text += "\n  " + terminal.OneLine(q.Get("message").String()) + " " + terminal.OneLine(q.Get("url").String())
	}
	if text == "" {
		return err
	}
	return exit.With(exit.Answer, &causeError{e, "visit these addresses, then call again" + text})
}

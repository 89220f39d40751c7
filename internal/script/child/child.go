// Package child is the program that runs a script: see package script. The process limits itself before it reads the
// script. The script has the language, tools, callTool and console, and nothing of the system.
package child

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"modernc.org/quickjs"

	"github.com/mcp-bridge/bridge/internal/script"
)

// Main runs the script of stdin, and returns the exit status of the process.
func Main() int {
	if err := limit(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	var begin script.Begin
	if in.Decode(&begin) != nil {
		return 1
	}
	from, to := replies(in), newWriter()
	r := &runtime{out: to}
	done := r.run(begin.Code, from)
	done.Done, done.Log = true, r.log.String()
	go func() {
		for range from { // the bridge reads on only when its replies are read
		}
	}()
	return to.end(done)
}

// writer writes lines to stdout. The script never waits for it: the bridge stops reading lines while many calls are in
// flight, and these end only when the script reads their replies.
type writer struct {
	lines chan []byte
	ended chan struct{}
}

func newWriter() *writer {
	w := &writer{make(chan []byte, script.MaxCalls+1), make(chan struct{})} // room for all calls and the outcome
	go func() {
		defer close(w.ended)
		for line := range w.lines {
			if _, err := os.Stdout.Write(line); err != nil {
				os.Exit(1) // the bridge is gone
			}
		}
	}()
	return w
}

// send queues a line.
func (w *writer) send(l script.Line) error {
	var line bytes.Buffer
	to := json.NewEncoder(&line)
	to.SetEscapeHTML(false) // an escape is six times as long
	err := to.Encode(l)
	if err == nil {
		w.lines <- line.Bytes()
	}
	return err
}

// end writes the last line, and returns the exit status of the process.
func (w *writer) end(l script.Line) int {
	if w.send(l) != nil {
		return 1
	}
	close(w.lines)
	<-w.ended
	return 0
}

// replies returns the replies of the bridge. The process ends with its stdin: nobody waits for the script any more.
func replies(in *json.Decoder) <-chan script.Reply {
	all := make(chan script.Reply)
	go func() {
		for {
			var r script.Reply
			if in.Decode(&r) != nil {
				os.Exit(1)
			}
			all <- r
		}
	}()
	return all
}

// runtime is a running script.
type runtime struct {
	vm      *quickjs.VM
	out     *writer
	waiting int // calls without a reply
	log     tail
	done    *script.Line // the outcome; nil while the script runs
}

// prelude is a function of the most calls. It defines what scripts have, and returns the functions begin and settle.
//
//go:embed prelude.js
var prelude string

// run runs the script, and returns its outcome.
func (r *runtime) run(code string, replies <-chan script.Reply) script.Line {
	var err error
	if r.vm, err = quickjs.NewVM(); err != nil {
		return failed(err)
	}
	r.vm.SetMemoryLimit(script.MaxMemory)
	begin, settle, err := r.prepare()
	if err != nil {
		return failed(err)
	}
	// The code begins in the first line, so that lines of errors are those of the code.
	body, err := r.vm.EvalValue("(async function script() {'use strict';"+code+"\n})", quickjs.EvalGlobal)
	if err != nil {
		line := failed(err)
		line.Error = "the script cannot be read as plain JavaScript (no types, no import): " + line.Error
		return line
	}
	if _, err := begin.CallValue(quickjs.UndefinedValue, body); err != nil {
		return failed(err)
	}
	for {
		if _, err := r.vm.ExecutePendingJobs(); err != nil && r.done == nil {
			return failed(err)
		}
		switch {
		case r.done != nil:
			return *r.done
		case r.waiting == 0:
			return script.Line{Error: "the script waits for something that never comes: no call is in flight"}
		}
		reply := <-replies
		r.waiting--
		if _, err := settle.CallValue(quickjs.UndefinedValue, reply.ID, string(reply.Value), reply.Error); err != nil {
			return failed(err)
		}
	}
}

// prepare gives the script what it has beside the language. begin starts the script, settle ends a call.
func (r *runtime) prepare() (begin, settle quickjs.Value, err error) {
	err = errors.Join(
		r.vm.RegisterHostFunc("call", r.call),
		r.vm.RegisterHostFunc("print", r.print),
		r.vm.RegisterHostFunc("end", r.end),
	)
	if err != nil {
		return begin, settle, err
	}
	made, err := r.vm.EvalValue(fmt.Sprintf("(%s)(%d)", prelude, script.MaxCalls), quickjs.EvalGlobal)
	if err != nil {
		return begin, settle, err
	}
	member := func(name string) (v quickjs.Value) {
		atom, no := r.vm.NewAtom(name)
		if err = errors.Join(err, no); err == nil {
			v, err = made.GetPropertyValue(atom)
		}
		return v
	}
	return member("begin"), member("settle"), err
}

// call takes a call of a tool: its id, its name and its arguments as JSON.
func (r *runtime) call(args []any) (any, error) {
	id, tool, raw := args[0], args[1].(string), args[2].(string)
	n, err := number(id)
	if err != nil {
		return nil, err
	}
	if len(tool)+len(raw) > script.MaxArguments {
		return nil, fmt.Errorf("the arguments have more than %d MiB", script.MaxArguments>>20)
	}
	if err := r.out.send(script.Line{ID: n, Tool: tool, Args: json.RawMessage(raw)}); err != nil {
		return nil, err
	}
	r.waiting++
	return nil, nil
}

// number returns a number of the script, which is an integer.
func number(v any) (int, error) {
	switch n := v.(type) {
	case int:
		return n, nil
	case int32:
		return int(n), nil
	case int64:
		return int(n), nil
	case float64:
		return int(n), nil
	}
	return 0, fmt.Errorf("%T is no number", v)
}

// print takes a text for the log.
func (r *runtime) print(args []any) (any, error) {
	r.log.add(args[0].(string))
	return nil, nil
}

// end takes the outcome: the value as JSON, or the error. What the script would do after it is not run.
func (r *runtime) end(args []any) (any, error) {
	r.vm.Interrupt()
	value, fault := args[0].(string), args[1].(string)
	switch {
	case r.done != nil:
	case fault != "":
		r.done = &script.Line{Error: shown(fault)}
	case len(value) > script.MaxResult:
		r.done = &script.Line{Error: fmt.Sprintf("the returned value has more than %d MiB: return less of it", script.MaxResult>>20)}
	default:
		r.done = &script.Line{Value: json.RawMessage(value)}
	}
	return nil, nil
}

// failed returns the outcome of a script that failed with an error of the language.
func failed(err error) script.Line {
	text := err.Error()
	if e, ok := errors.AsType[*quickjs.Error](err); ok {
		if e.LineNumber > 0 {
			text += fmt.Sprintf(" in line %d", e.LineNumber)
		} else if e.Stack != "" {
			text += "\n" + strings.TrimRight(e.Stack, "\n")
		}
	}
	return script.Line{Error: shown(text)}
}

// maxError bounds the text of an error in bytes, and maxFrames its places.
const (
	maxError  = 2 << 10
	maxFrames = 5
)

// frame matches a place in the stack of an error.
var frame = regexp.MustCompile(`(?m)^    at (.*) \(<[a-z]+>:([0-9]+):[0-9]+\)$`)

// shown returns the text of an error with its places in the script.
func shown(s string) string {
	var b strings.Builder
	frames := 0
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		m := frame.FindStringSubmatch(line)
		if m == nil {
			b.WriteString(line + "\n")
			continue
		}
		if frames++; frames <= maxFrames {
			b.WriteString("    at " + m[1] + ", line " + m[2] + "\n")
		}
		if m[1] == "script" { // below is the prelude
			break
		}
	}
	s = strings.TrimRight(b.String(), "\n")
	if len(s) > maxError {
		return strings.ToValidUTF8(s[:maxError], "") + "…"
	}
	return s
}

// tail is the end of a text, at most script.MaxLog bytes.
type tail struct{ text []byte }

func (t *tail) add(s string) {
	t.text = append(t.text, s[max(0, len(s)-script.MaxLog):]...)
	t.text = t.text[max(0, len(t.text)-script.MaxLog):]
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.text), "") }

// Package child is the program that runs a script: see package script. The process limits itself before it reads the
// script. The script has the language, tools, callTool and console.log, and nothing of the system.
package child

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dop251/goja"

	"github.com/mcp-bridge/bridge/internal/script"
)

// maxDepth bounds the depth of functions that call each other.
const maxDepth = 5000

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
	r := &runtime{vm: goja.New(), out: json.NewEncoder(os.Stdout), waiting: map[int]*call{}}
	r.replies = replies(in)
	done := r.run(begin.Code)
	done.Done, done.Log = true, r.log.String()
	if r.out.Encode(done) != nil {
		return 1
	}
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
	vm      *goja.Runtime
	out     *json.Encoder
	replies <-chan script.Reply
	calls   int
	waiting map[int]*call // calls without a reply, by id
	log     tail
	parse   goja.Callable // JSON.parse
	write   goja.Callable // JSON.stringify
}

// call is a call of a tool.
type call struct{ resolve, reject func(any) error }

// run runs the script, and returns its outcome.
func (r *runtime) run(code string) script.Line {
	r.vm.SetMaxCallStackSize(maxDepth)
	if err := r.prepare(); err != nil {
		return script.Line{Error: err.Error()}
	}
	// The code begins in the first line, so that lines of errors are those of the code.
	program, err := goja.Compile("script", "(async function () {"+code+"\n})()", true)
	if err != nil {
		return script.Line{Error: "the script cannot be read as plain JavaScript (no types, no import): " + strings.TrimPrefix(err.Error(), "SyntaxError: ")}
	}
	v, err := r.vm.RunProgram(program)
	if err != nil {
		return script.Line{Error: said(err)}
	}
	p, ok := v.Export().(*goja.Promise)
	if !ok {
		return script.Line{Error: "the script does not end as a function"}
	}
	for p.State() == goja.PromiseStatePending {
		if len(r.waiting) == 0 {
			return script.Line{Error: "the script waits for something that never comes: no call is in flight"}
		}
		if err := r.reply(<-r.replies); err != nil {
			return script.Line{Error: said(err)}
		}
	}
	if p.State() == goja.PromiseStateRejected {
		return script.Line{Error: thrown(p.Result())}
	}
	return r.result(p.Result())
}

// prepare defines what the script has beside the language.
func (r *runtime) prepare() (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("the script cannot be prepared: %v", fault)
		}
	}()
	object := r.vm.Get("JSON").ToObject(r.vm)
	r.parse, _ = goja.AssertFunction(object.Get("parse"))
	r.write, _ = goja.AssertFunction(object.Get("stringify"))
	console := r.vm.CreateObject(nil)
	for _, name := range []string{"log", "info", "warn", "error", "debug"} {
		if err := console.Set(name, r.logs); err != nil {
			return err
		}
	}
	tools := r.vm.NewDynamicObject(&tools{r, map[string]goja.Value{}})
	if err := tools.SetPrototype(nil); err != nil {
		return err
	}
	return errors.Join(
		r.vm.Set("console", console),
		r.vm.Set("tools", tools),
		r.vm.Set("callTool", func(c goja.FunctionCall) goja.Value { return r.call(c.Argument(0).String(), c.Argument(1)) }),
	)
}

// call calls a tool, and returns the promise of its result.
func (r *runtime) call(tool string, args goja.Value) goja.Value {
	p, resolve, reject := r.vm.NewPromise()
	raw := []byte("{}")
	if args != nil && !goja.IsUndefined(args) && !goja.IsNull(args) {
		text, err := r.write(goja.Undefined(), args)
		if err != nil {
			panic(err) // thrown in the script
		}
		raw = []byte(text.String())
	}
	if len(raw) == 0 || raw[0] != '{' {
		panic(r.vm.NewTypeError("the arguments of %s must be an object", tool))
	}
	r.calls++
	if r.calls > script.MaxCalls {
		_ = reject(r.failure(fmt.Sprintf("the script makes too many calls: at most %d", script.MaxCalls)))
		return r.vm.ToValue(p)
	}
	r.waiting[r.calls] = &call{resolve, reject}
	if r.out.Encode(script.Line{ID: r.calls, Tool: tool, Args: raw}) != nil {
		os.Exit(1) // the bridge is gone
	}
	return r.vm.ToValue(p)
}

// reply settles the promise of a call. All that waits for the promise runs before reply returns.
func (r *runtime) reply(reply script.Reply) error {
	c := r.waiting[reply.ID]
	delete(r.waiting, reply.ID)
	if c == nil {
		return nil
	}
	if reply.Error != "" {
		return c.reject(r.failure(reply.Error))
	}
	value, err := r.parse(goja.Undefined(), r.vm.ToValue(string(reply.Value)))
	if err != nil {
		return c.reject(r.failure("the result is no JSON"))
	}
	return c.resolve(value)
}

// failure returns an Error of the script.
func (r *runtime) failure(text string) goja.Value {
	e, err := r.vm.New(r.vm.Get("Error"), r.vm.ToValue(text))
	if err != nil { // the script has replaced Error
		return r.vm.ToValue(text)
	}
	return e
}

// result returns the outcome of a script that returned v.
func (r *runtime) result(v goja.Value) script.Line {
	text, err := r.write(goja.Undefined(), v)
	switch {
	case err != nil:
		return script.Line{Error: "the returned value cannot be written as JSON: " + said(err)}
	case goja.IsUndefined(text):
		return script.Line{Value: json.RawMessage("null")}
	case len(text.String()) > script.MaxResult:
		return script.Line{Error: fmt.Sprintf("the returned value has more than %d MiB: return less of it", script.MaxResult>>20)}
	}
	return script.Line{Value: json.RawMessage(text.String())}
}

// thrown returns the text of what a script threw, with the place.
func thrown(v goja.Value) string {
	o, ok := v.(*goja.Object)
	if !ok {
		return "the script threw " + v.String()
	}
	if stack := o.Get("stack"); stack != nil && !goja.IsUndefined(stack) {
		return clipped(strings.TrimSpace(stack.String()))
	}
	return clipped(o.String())
}

// said returns the text of an error of the language.
func said(err error) string {
	if _, ok := errors.AsType[*goja.StackOverflowError](err); ok {
		return fmt.Sprintf("RangeError: more than %d functions call each other", maxDepth)
	}
	if e, ok := errors.AsType[*goja.Exception](err); ok {
		return thrown(e.Value())
	}
	return clipped(err.Error())
}

// maxError bounds the text of an error, in bytes.
const maxError = 2 << 10

func clipped(s string) string {
	if len(s) > maxError {
		return strings.ToValidUTF8(s[:maxError], "") + "…"
	}
	return s
}

// logs takes a line for the log.
func (r *runtime) logs(c goja.FunctionCall) goja.Value {
	for i, v := range c.Arguments {
		if i > 0 {
			r.log.add(" ")
		}
		text := v.String
		if _, is := v.(*goja.Object); is {
			if raw, err := r.write(goja.Undefined(), v); err == nil && !goja.IsUndefined(raw) {
				text = raw.String
			}
		}
		r.log.add(text())
	}
	r.log.add("\n")
	return goja.Undefined()
}

// tail is the end of a text, at most script.MaxLog bytes.
type tail struct{ text []byte }

var _ io.StringWriter = (*tail)(nil)

func (t *tail) add(s string) { _, _ = t.WriteString(s) }

// WriteString implements io.StringWriter.
func (t *tail) WriteString(s string) (int, error) {
	n := len(s)
	t.text = append(t.text, s[max(0, n-script.MaxLog):]...)
	t.text = t.text[max(0, len(t.text)-script.MaxLog):]
	return n, nil
}

func (t *tail) String() string { return strings.ToValidUTF8(string(t.text), "") }

// tools is the object tools: each member is a function that calls the tool of its name.
type tools struct {
	r   *runtime
	had map[string]goja.Value
}

var _ goja.DynamicObject = (*tools)(nil)

// Get returns the function that calls a tool.
func (t *tools) Get(tool string) goja.Value {
	if f := t.had[tool]; f != nil {
		return f
	}
	f := t.r.vm.ToValue(func(c goja.FunctionCall) goja.Value { return t.r.call(tool, c.Argument(0)) })
	t.had[tool] = f
	return f
}

// Set refuses to change a tool.
func (*tools) Set(string, goja.Value) bool { return false }

// Has reports that any tool may be there: the bridge knows.
func (*tools) Has(string) bool { return true }

// Delete refuses to remove a tool.
func (*tools) Delete(string) bool { return false }

// Keys returns no names: search_tools finds tools.
func (*tools) Keys() []string { return nil }

package script_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/programtest"
	"github.com/mcp-bridge/bridge/internal/scaletest"
	"github.com/mcp-bridge/bridge/internal/script"
)

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }

// echo answers calls with their names and arguments.
type echo struct {
	calls atomic.Int64
	ended atomic.Int64
	began chan struct{} // gets one for each call that hangs; may be nil
}

func (e *echo) Call(ctx context.Context, tool string, args []byte) ([]byte, error) {
	e.calls.Add(1)
	defer e.ended.Add(1)
	switch tool {
	case "fail":
		return nil, errors.New("it is full")
	case "hang":
		if e.began != nil {
			e.began <- struct{}{}
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case "silent":
		return nil, errors.New("")
	case "big":
		return []byte(`"` + strings.Repeat("x", 1<<20) + `"`), nil
	}
	return []byte(fmt.Sprintf(`{"tool":%q,"args":%s}`, tool, args)), nil
}

func scripts(t *testing.T) *script.Scripts {
	t.Helper()
	scaletest.Integration(t)
	return script.New(programtest.Build(t, "./cmd/bridge", false)) // the race detector needs more memory than a script gets
}

// What scripts can do, and what comes of their mistakes.
func TestScripts(t *testing.T) {
	t.Parallel()
	s := scripts(t)
	for _, tc := range []struct {
		name, code string
		value      string // the whole value
		fails      string // a part of the error
		log        string
	}{
		{name: "value", code: `return {a: 1, b: [2, "x"]}`, value: `{"a":1,"b":[2,"x"]}`},
		{name: "nothing", code: `1 + 1`, value: `null`},
		{name: "call", code: `const r = await tools.files__read({path: "a"}); return r.args.path + r.tool`, value: `"afiles__read"`},
		{name: "by name", code: `return (await callTool("read-text")).tool`, value: `"read-text"`},
		{name: "together", code: `const all = await Promise.all([1, 2, 3].map((n) => tools.t({n}))); return all.map((r) => r.args.n)`, value: `[1,2,3]`},
		{name: "log", code: `console.log("a", {b: 1}, [2]); console.error(undefined); return 1`, value: `1`, log: "a {\"b\":1} [2]\nundefined\n"},
		{name: "caught", code: `try { await tools.fail() } catch (e) { return e.message + (e instanceof Error) }`, value: `"it is fulltrue"`},
		{name: "no text", code: `try { await tools.silent() } catch (e) { return e.message }`, value: `"the call failed, without a reason"`},
		{name: "long arguments", code: `try { await tools.t({a: "x".repeat(9e6)}) } catch (e) { return e.message + (await tools.t({a: "<".repeat(1e6)})).args.a.length }`, value: `"the arguments have more than 1 MiB1000000"`},
		{name: "many calls with long arguments and results", code: `return (await Promise.all(Array.from({length: 200}, () => tools.big({a: "x".repeat(2e3)}).then((r) => r.length)))).length`, value: `200`},
		{name: "many calls, not awaited", code: `for (let i = 0; i < 200; i++) tools.big({a: "x".repeat(2e3)}); return 1`, value: `1`},
		{name: "goes on after the end", code: `(async () => { for (;;) await null })(); return 1`, value: `1`},
		{name: "thrown", code: "const a = 1;\nawait tools.fail()", fails: "it is full"},
		{name: "line", code: "const a = 1;\n  nope()", fails: "ReferenceError: 'nope' is not defined\n    at script, line 2"},
		{name: "syntax", code: "const a = 1;\nconst b: string = 2", fails: "plain JavaScript (no types, no import): SyntaxError: missing initializer for const variable in line 2"},
		{name: "import", code: `import fs from "fs"`, fails: "plain JavaScript"},
		{name: "string thrown", code: `throw "no"`, fails: "the script threw no"},
		{name: "comment at the end", code: `return 1 // the end`, value: `1`},
		{name: "big result", code: `return (await tools.big()).length`, value: `1048576`},
		{name: "too long", code: `return "x".repeat(2e6)`, fails: "return less of it"},
		{name: "circle", code: `const a = {}; a.a = a; return a`, fails: "cannot be written as JSON"},
		{name: "bigint", code: `return 1n`, fails: "cannot be written as JSON"},
		{name: "arguments", code: `await tools.t("text")`, fails: "must be an object"},
		{name: "never", code: `await new Promise(() => {})`, fails: "waits for something that never comes"},
		{name: "not awaited", code: `tools.hang(); return 1`, value: `1`},

		// Names that mean something in the language are only names.
		{name: "__proto__", code: `return (await tools.__proto__({})).tool`, value: `"__proto__"`},
		{name: "constructor", code: `return (await tools.constructor({})).tool`, value: `"constructor"`},
		{name: "then", code: `return (await tools["then"]({})).tool`, value: `"then"`},
		{name: "toString", code: `return (await tools.toString()).tool`, value: `"toString"`},
		{name: "prototype", code: `Object.prototype.tool = "evil"; Array.prototype.map = null; return (await tools.t({})).tool`, value: `"t"`},
		{name: "replaced", code: `JSON.stringify = () => "{}"; JSON.parse = () => "evil"; return (await tools.t({a: 1})).args.a`, value: `1`},
		{name: "no Error", code: `Error = null; try { await tools.fail() } catch (e) { return String(e) }`, value: `"Error: it is full"`},
		{name: "changed", code: `try { tools.t = 1 } catch (e) {} return typeof tools.t`, value: `"function"`},

		// There is nothing of the system.
		{name: "globals", code: `return ["process", "require", "module", "fetch", "setTimeout", "XMLHttpRequest", "Deno", "Go", "os"].filter((n) => n in globalThis)`, value: `[]`},
		{name: "this", code: `return typeof this`, value: `"undefined"`},
		{name: "host", code: `return tools.t.constructor("return typeof process")()`, value: `"undefined"`},
		{name: "members", code: `return Object.getOwnPropertyNames(callTool).join()`, value: `"length,name"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := &echo{}
			r, err := s.Run(t.Context(), "p", tc.code, e)
			switch {
			case err != nil:
				t.Error(err)
			case tc.fails != "":
				if !strings.Contains(r.Error, tc.fails) || r.Value != nil {
					t.Errorf("%s, error %q, want %q", r.Value, r.Error, tc.fails)
				}
			case string(r.Value) != tc.value || r.Error != "" || r.Log != tc.log:
				t.Errorf("%s, error %q, log %q, want %s and %q", r.Value, r.Error, r.Log, tc.value, tc.log)
			}
			if e.calls.Load() != e.ended.Load() {
				t.Error("a call goes on after its script")
			}
		})
	}
}

// A script that takes too much ends alone.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := scripts(t)
	for name, tc := range map[string]struct {
		code, fails string
		long        bool // it takes seconds of processor time
	}{
		"memory by repeat":  {code: `return "x".repeat(1e9).length`},
		"memory by pushes":  {code: `const a = []; for (;;) a.push({})`, long: true},
		"memory by fill":    {code: `return Array(1e9).fill(1).length`},
		"memory by strings": {code: `let s = "x"; for (;;) s += s`},
		"deep JSON":         {code: `let a = []; for (let i = 0; i < 1e6; i++) a = [a]; return a`, long: true},
		"loop":              {code: `for (;;);`, fails: "the script was ended", long: true},
		"sort":              {code: `return [3, 1, 2].sort(() => { for (;;); })`, fails: "the script was ended", long: true},
		"expression":        {code: `return /^(?=a)(a+)+$/.test("a".repeat(50) + "b")`, fails: "the script was ended", long: true},
		"recursion":         {code: `const f = () => f() + 1; return f()`, fails: "stack overflow"},
		"calls":             {code: `const all = []; for (let i = 0; i < 1000; i++) all.push(tools.t({i})); await Promise.all(all)`, fails: "too many calls"},
		"log":               {code: `for (let i = 0; i < 1e4; i++) console.log("x".repeat(1e3)); return 1`, fails: "-"},
		"promises":          {code: `const all = []; for (let i = 0; i < 10000; i++) all.push(Promise.resolve(i)); return (await Promise.all(all)).length`, fails: "-"},
		"calls to an end":   {code: `let n = 0; for (let i = 0; i < 300; i++) { try { await tools.t({i}); n++ } catch (e) {} } return n`, fails: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.long {
				scaletest.Large(t)
			}
			r, err := s.Run(t.Context(), "p", tc.code, &echo{})
			switch {
			case err != nil:
				t.Error(err)
			case tc.fails == "-":
				if r.Error != "" || len(r.Log) > script.MaxLog {
					t.Errorf("error %q, %d bytes of log", r.Error, len(r.Log))
				}
			case r.Error == "" || !strings.Contains(r.Error, tc.fails):
				t.Errorf("%.100s, error %q, want %q", r.Value, r.Error, tc.fails)
			}
		})
	}
}

// The scripts in docs/code.md run.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/code.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```js\n(.*?)```").FindAllSubmatch(page, -1)
	if len(found) == 0 {
		t.Fatal("there are none")
	}
	s := scripts(t)
	for _, m := range found {
		r, err := s.Run(t.Context(), "p", string(m[1]), files{})
		if err != nil || string(r.Value) != `["b.txt"]` || r.Log != "3 files\n" {
			t.Errorf("%s%s, %q, log %q, %v", m[1], r.Value, r.Error, r.Log, err)
		}
	}
}

// files answers every call with the content of a file: only b.txt has TODO.
type files struct{}

func (files) Call(_ context.Context, _ string, args []byte) ([]byte, error) {
	if strings.Contains(string(args), `"b.txt"`) {
		return []byte(`{"content":"TODO"}`), nil
	}
	return []byte(`{"content":""}`), nil
}

// A client that leaves ends the script and its calls.
func TestCancelled(t *testing.T) {
	t.Parallel()
	s := scripts(t)
	gone := errors.New("the client has left")
	for _, code := range []string{`await tools.hang()`, `for (;;);`, `await Promise.all(Array.from({length: 100}, () => tools.hang()))`} {
		ctx, cancel := context.WithCancelCause(t.Context())
		e := &echo{}
		time.AfterFunc(200*time.Millisecond, func() { cancel(gone) })
		if _, err := s.Run(ctx, "p", code, e); !errors.Is(err, gone) {
			t.Errorf("%s: %v, want %v", code, err, gone)
		}
		if e.calls.Load() != e.ended.Load() {
			t.Errorf("%s: %d calls, %d have ended", code, e.calls.Load(), e.ended.Load())
		}
	}
}

// One principal cannot take all turns.
func TestTurns(t *testing.T) {
	t.Parallel()
	s := scripts(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	e := &echo{began: make(chan struct{}, 100)}
	for range 40 {
		wg.Go(func() { _, _ = s.Run(ctx, "p", `await tools.hang()`, e) })
	}
	for range 8 {
		<-e.began
	}
	if r, err := s.Run(ctx, "q", `return 1`, e); err != nil || string(r.Value) != "1" {
		t.Errorf("another principal: %s, %q, %v", r.Value, r.Error, err)
	}
	if n := len(e.began); n > 0 {
		t.Errorf("%d further scripts of the first principal run", n)
	}
}

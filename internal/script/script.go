// Package script runs JavaScript that models write. A script runs in a child process of its own, without files, network
// and environment. It can only call tools, through the bridge.
//
// Package child is the other side: the program that runs the script. The two sides send each other lines of JSON.
package script

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// Tool is the name of the tool that runs a script.
const Tool = "run_code"

// Argument is the only argument of the program that runs a script.
const Argument = "script-child"

// These constants bound one script. The child, or the system on its behalf, enforces MaxMemory and MaxProcessor.
const (
	MaxTime      = 60 * time.Second // with all calls
	MaxCalls     = 200
	MaxAtOnce    = 16      // calls in flight; further calls wait
	MaxArguments = 1 << 20 // of one call, with the name of the tool
	MaxResult    = 1 << 20
	MaxLog       = 4 << 10
	MaxCode      = 256 << 10
	MaxMemory    = 300 << 20
	MaxProcessor = 10 * time.Second
)

// maxScripts bounds the scripts that run at once, and maxPerPrincipal those of one principal, so that scripts of others run
// beside. Further scripts wait for their turn.
const (
	maxScripts      = 16
	maxPerPrincipal = 8
)

// maxLine bounds one line of the child: a call with its arguments, or the result with the log. Characters of the log and
// of names may be escaped.
const maxLine = 8 << 20

// Caller makes the calls of one script.
type Caller interface {
	// Call calls a tool. args is a raw JSON object. The result is raw JSON. An error is thrown in the script, with its
	// text.
	Call(ctx context.Context, tool string, args []byte) (result []byte, err error)
}

// Result is the outcome of a script.
type Result struct {
	Value []byte // what the script returned, as raw JSON; nil if Error is set
	Error string // why the script failed, for the model
	Log   string // the end of what the script logged, at most MaxLog bytes
}

// Begin is the first line for the child.
type Begin struct {
	Code string `json:"code"`
}

// Reply is a further line for the child: the outcome of a call.
type Reply struct {
	ID    int             `json:"id"`
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

// Line is a line of the child: a call, or the outcome of the script.
type Line struct {
	ID   int             `json:"id,omitempty"` // of a call, from 1
	Tool string          `json:"tool,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`

	Done  bool            `json:"done,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
	Log   string          `json:"log,omitempty"`
}

// Scripts runs scripts. It is safe for concurrent use.
type Scripts struct {
	program string
	turns   turns

	mu         sync.Mutex // guards the rest
	principals map[string]*principal
}

// turns has one item for each script that runs.
type turns chan struct{}

func (t turns) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// principal has scripts that run or wait.
type principal struct {
	turns   turns
	scripts int
}

// New returns a Scripts whose child is program with Argument.
func New(program string) *Scripts {
	return &Scripts{
		program:    program,
		turns:      make(turns, maxScripts),
		principals: map[string]*principal{},
	}
}

// enter waits for the turn of a script. After a nil error, leave must be called. All clients without a principal share all
// turns.
func (s *Scripts) enter(ctx context.Context, name string) (leave func(), err error) {
	if name == "" {
		return func() { <-s.turns }, s.turns.take(ctx)
	}
	s.mu.Lock()
	p := s.principals[name]
	if p == nil {
		p = &principal{turns: make(turns, maxPerPrincipal)}
		s.principals[name] = p
	}
	p.scripts++
	s.mu.Unlock()
	left := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.scripts--; p.scripts == 0 {
			delete(s.principals, name)
		}
	}
	if err := p.turns.take(ctx); err != nil {
		left()
		return nil, err
	}
	if err := s.turns.take(ctx); err != nil {
		<-p.turns
		left()
		return nil, err
	}
	return func() {
		<-s.turns
		<-p.turns
		left()
	}, nil
}

// errTooLong ends a script that runs too long.
var errTooLong = errors.New("the script was ended after " + MaxTime.String())

// Run runs the body of an async function for a principal, which may be empty. An error means that the client has left, or
// that no child could be started. Whatever the script does, all its calls have ended when Run returns.
func (s *Scripts) Run(ctx context.Context, principal, code string, to Caller) (Result, error) {
	if len(code) > MaxCode {
		return Result{Error: fmt.Sprintf("the script has more than %d KiB", MaxCode>>10)}, nil
	}
	leave, err := s.enter(ctx, principal)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	limited, cancel := context.WithTimeoutCause(ctx, MaxTime, errTooLong)
	defer cancel()
	r := &run{to: to}
	r.ctx, r.stop = context.WithCancelCause(limited)
	defer r.stop(nil)
	out, err := r.start(s.program, code)
	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case errors.Is(context.Cause(limited), errTooLong):
		return Result{Error: errTooLong.Error()}, nil
	}
	return out, err
}

// run is one script with its child.
type run struct {
	to   Caller
	ctx  context.Context // ends the child and all calls
	stop context.CancelCauseFunc
	wg   sync.WaitGroup // of the calls
	n    int            // calls so far

	writing sync.Mutex // held while a line is written to in
	in      io.Writer
}

// start runs the child to its end.
func (r *run) start(program, code string) (Result, error) {
	c := exec.CommandContext(r.ctx, program, Argument)
	c.Env = []string{}
	c.WaitDelay = time.Second
	in, err := c.StdinPipe()
	if err != nil {
		return Result{}, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return Result{}, err
	}
	release, err := begin(c)
	if err != nil {
		return Result{}, fmt.Errorf("the script's process could not be started: %w", err)
	}
	defer release()
	r.in = in
	result, done := r.follow(out, code)
	r.stop(nil) // what the script does not wait for is cancelled
	r.wg.Wait()
	if err := c.Wait(); !done {
		how := "without an answer"
		if err != nil {
			how = err.Error()
		}
		return Result{Error: fmt.Sprintf("the script was ended (%s): it may use at most %d MiB of memory and %v of processor time", how, MaxMemory>>20, MaxProcessor)}, nil
	}
	return result, nil
}

// follow talks with the child until the script has ended. done is false if the child ended before.
func (r *run) follow(out io.Reader, code string) (result Result, done bool) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	r.write(Begin{Code: code})
	places := make(chan struct{}, MaxAtOnce)
	for lines.Scan() {
		var l Line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			return Result{}, false
		}
		if l.Done {
			return Result{Value: l.Value, Error: l.Error, Log: l.Log}, true
		}
		if r.n++; r.n > MaxCalls {
			r.write(Reply{ID: l.ID, Error: fmt.Sprintf("the script makes too many calls: at most %d", MaxCalls)})
			continue
		}
		select {
		case places <- struct{}{}:
		case <-r.ctx.Done():
			return Result{}, false
		}
		r.wg.Go(func() {
			defer func() { <-places }()
			r.call(&l)
		})
	}
	return Result{}, false
}

// call makes a call of the script.
func (r *run) call(l *Line) {
	value, err := r.to.Call(r.ctx, l.Tool, l.Args)
	if err != nil {
		r.write(Reply{ID: l.ID, Error: cmp.Or(err.Error(), "the call failed, without a reason")})
		return
	}
	r.write(Reply{ID: l.ID, Value: value})
}

// write writes a line to the child. A child that has ended reads nothing: the error shows when the child is awaited.
func (r *run) write(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		r.stop(fmt.Errorf("a line for the script: %w", err))
		return
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	_, _ = r.in.Write(append(text, '\n'))
}

// Package reload has a bridge read its configuration again while it runs: when the file
// has changed, and when somebody asks for it. A file with a fault changes nothing.
//
// What changes by that, and when it counts, is for the bridge to do.
package reload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/bridge/config"
)

// Target is the bridge.
type Target interface {
	// Plan returns what Apply would change.
	Plan(c *config.Config) ([]config.Change, error)
	// Apply has another configuration count. An error changes nothing.
	Apply(c *config.Config) ([]config.Change, error)
}

// Options say what is read.
type Options struct {
	// File is the configuration file, which is looked at.
	File string
	// Load reads it, with all that it needs to be served. It is not called by two
	// goroutines at once.
	Load func() (*config.Config, error)
	Log  *slog.Logger
	// Began is called when somebody has it read to be applied, or a change of it is about
	// to be applied, and the function that it returns when that is over. It may be nil.
	Began func() (over func())
	// Applied is told of what counts from now on, after Target has applied it. It may be nil.
	Applied func(c *config.Config)
}

// Result is what a reload has changed, or would change.
type Result struct {
	Changes []config.Change `json:"changes"`
	// Warnings are those of the file.
	Warnings []string `json:"warnings"`
	// File is which it is, and Digest tells its content from others: see config.Digest.
	File   string `json:"file"`
	Digest string `json:"digest"`
}

// Status says which configuration counts.
type Status struct {
	// Hash tells the content of the file, and of those that it is made of, from others.
	Hash     string    `json:"hash"`
	LoadedAt time.Time `json:"loaded_at"`
	// LastError says in short why the file could not be taken; empty when it was.
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`
	// Pending are the changes that wait for a restart.
	Pending []string `json:"pending_restart,omitempty"`
}

// Counts are what metrics have of it.
type Counts struct {
	Good              bool // the last one succeeded
	At                time.Time
	Succeeded, Faulty uint64
}

// Reloader reads the configuration. Its methods may be called concurrently.
type Reloader struct {
	o         Options
	follows   atomic.Bool // the file is looked at
	now       atomic.Pointer[Status]
	succeeded atomic.Uint64
	faulty    atomic.Uint64

	mu       sync.Mutex // held while the configuration is read and applied; guards the rest
	target   Target
	files    []string // that it is made of, beside its own
	print    string   // of what was read last, whether it was good or not
	said     string   // what was wrong with it
	warnings []string

	// The same content, which could be read and not applied, is not tried before again,
	// and pause after that.
	again time.Time
	pause time.Duration
}

// New returns what reads that file: see Load.
func New(o Options) *Reloader {
	if o.Began == nil {
		o.Began = func() func() { return func() {} }
	}
	r := &Reloader{o: o}
	r.now.Store(&Status{})
	return r
}

// Load reads the configuration for the first time.
func (r *Reloader) Load() (*config.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.digests() // what is written while it is read is another one
	c, err := r.o.Load()
	if err != nil {
		return nil, err
	}
	r.took(c, before)
	r.now.Store(&Status{Hash: brief(r.print), LoadedAt: time.Now()})
	if err := r.once(); err != nil {
		r.o.Log.Info("the configuration cannot be reloaded", "why", err)
	}
	return c, nil
}

// Serve says what has the configuration now. It is called once, after Load.
func (r *Reloader) Serve(t Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = t
}

// took notes what was read. before is what digests returned before that. The caller
// holds r.mu.
func (r *Reloader) took(c *config.Config, before map[string]string) {
	r.follows.Store(c.Reload == config.ReloadOn && !config.Stream(r.o.File))
	r.made(c, before)
	r.warnings, r.said, r.pause = c.Warnings, "", 0
}

// made notes what a configuration is made of. The caller holds r.mu.
func (r *Reloader) made(c *config.Config, before map[string]string) {
	r.files = c.Files()
	r.print = r.prints(before)
}

// digests returns what tells the content of each file from others. The caller holds r.mu.
func (r *Reloader) digests() map[string]string {
	all := map[string]string{r.o.File: config.Digest(r.o.File)}
	for _, f := range r.files {
		all[f] = config.Digest(f)
	}
	return all
}

// prints returns what tells the content of all files from others, of which some are
// known. The caller holds r.mu.
func (r *Reloader) prints(known map[string]string) string {
	h := sha256.New()
	for _, f := range append([]string{r.o.File}, r.files...) {
		d, ok := known[f]
		if !ok {
			d = config.Digest(f)
		}
		fmt.Fprintln(h, f, d)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// load reads the file once more. The caller holds r.mu.
func (r *Reloader) load() (*config.Config, error) {
	if err := r.once(); err != nil {
		return nil, err
	}
	return r.o.Load()
}

// once returns an error if a file can be read once only. The caller holds r.mu.
func (r *Reloader) once() error {
	for _, f := range append([]string{r.o.File}, r.files...) {
		if config.Stream(f) {
			return fmt.Errorf("%s is a pipe or another thing that can be read only once: to have it read again, name a regular file", f)
		}
	}
	return nil
}

func brief(print string) string { return print[:min(len(print), 16)] }

// File returns the name of the file.
func (r *Reloader) File() string { return r.o.File }

// Status returns which configuration counts.
func (r *Reloader) Status() Status { return *r.now.Load() }

// Counts returns how often it was read.
func (r *Reloader) Counts() Counts {
	s := r.now.Load()
	return Counts{s.LastError == "", s.LoadedAt, r.succeeded.Load(), r.faulty.Load()}
}

// Check returns what Reload would change.
func (r *Reloader) Check() (*Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := config.Digest(r.o.File)
	c, err := r.load()
	if err != nil {
		return nil, err
	}
	changes, err := r.target.Plan(c)
	if err != nil {
		return nil, err
	}
	return r.result(c, changes, own), nil
}

func (r *Reloader) result(c *config.Config, changes []config.Change, own string) *Result {
	return &Result{append([]config.Change{}, changes...), append([]string{}, c.Warnings...), r.o.File, own}
}

// Reload reads the configuration and has it count. An error changes nothing. Reloads do
// not overlap: each reads the file as it is when its turn comes.
func (r *Reloader) Reload() (*Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reload(true)
}

// reload is Reload. Unless somebody has asked, the same error is not said again. The
// caller holds r.mu.
func (r *Reloader) reload(asked bool) (*Result, error) {
	before := r.digests() // what is written while it is read or applied is another one
	if asked {
		defer r.o.Began()()
	}
	c, err := r.load()
	if err != nil {
		r.print, r.pause = r.prints(before), 0
		r.failed(err, asked)
		return nil, err
	}
	for _, f := range c.Files() {
		if before[f] == "" {
			before[f] = config.Digest(f)
		}
	}
	if !asked {
		defer r.o.Began()()
	}
	changes, err := r.target.Apply(c)
	if err != nil {
		was := r.print
		if r.made(c, before); r.print != was {
			r.pause = 0
		}
		r.pause = min(max(2*r.pause, every), longest)
		r.again = time.Now().Add(r.pause)
		r.failed(err, asked)
		return nil, err
	}
	if r.o.Applied != nil {
		r.o.Applied(c)
	}
	for _, w := range c.Warnings {
		if !slices.Contains(r.warnings, w) {
			r.o.Log.Warn(w)
		}
	}
	r.took(c, before)
	r.succeeded.Add(1)
	s := &Status{Hash: brief(r.print), LoadedAt: time.Now()}
	var said []string
	for _, change := range changes {
		said = append(said, change.String())
		if change.Effect == config.EffectRestart {
			s.Pending = append(s.Pending, change.Path)
		}
	}
	r.now.Store(s)
	r.o.Log.Info("configuration reloaded", "file", r.o.File, "changes", len(changes), "what", clipped(said))
	if len(s.Pending) > 0 {
		r.o.Log.Warn("some changes of the configuration count after a restart only", "keys", strings.Join(s.Pending, ", "))
	}
	return r.result(c, changes, before[r.o.File]), nil
}

// mostSaid is how many changes a line of the log has.
const mostSaid = 50

func clipped(said []string) string {
	more := ""
	if n := len(said) - mostSaid; n > 0 {
		said, more = said[:mostSaid], fmt.Sprintf("; and %d more", n)
	}
	return strings.Join(said, "; ") + more
}

// failed notes and logs why nothing was changed. The caller holds r.mu.
func (r *Reloader) failed(err error, asked bool) {
	text := err.Error()
	if text == r.said && !asked {
		return
	}
	r.said = text
	r.faulty.Add(1)
	at := time.Now()
	s := r.Status()
	s.LastErrorAt, s.LastError = &at, "the file could not be taken: the log says why"
	if faults, ok := errors.AsType[config.Faults](err); ok {
		s.LastError = fmt.Sprintf("the file has a fault in line %d: the log has it", faults[0].Line)
		if n := len(faults); n > 1 {
			s.LastError = fmt.Sprintf("the file has %d faults, the first in line %d: the log has them", n, faults[0].Line)
		}
		for _, f := range faults {
			r.o.Log.Error("fault of the configuration", "err", f.String())
		}
		text = s.LastError
	}
	r.now.Store(&s)
	r.o.Log.Error("the configuration was not reloaded: nothing has changed", "file", r.o.File, "err", text)
}

// The file is looked at every so often. What could be read and not applied is tried again
// less and less often: at last at the longest pause.
const (
	every   = 2 * time.Second
	longest = time.Minute
)

// Follow looks at the file until ctx ends, and reads it when it has changed, unless the
// configuration says otherwise. A change is taken when two looks agree.
func (r *Reloader) Follow(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	seen := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if r.follows.Load() {
			seen = r.look(seen)
		} else {
			seen = ""
		}
	}
}

// look reads the file if it is as it was seen the last time, and not as it was read. It
// returns as what it is seen. Of a file with a fault it cannot be told what it is made
// of, so that one is read each time.
func (r *Reloader) look(before string) (seen string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen = r.prints(nil)
	if r.target == nil || seen != before {
		return seen
	}
	if seen != r.print || r.said != "" && (r.pause == 0 || !time.Now().Before(r.again)) {
		_, _ = r.reload(false) // it is logged
	}
	return seen
}

// Package reload reads the configuration of a running bridge again, after a change of the file and on request. A faulty
// file changes nothing.
//
// The bridge applies the changes: see [Target].
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

// Target is the bridge whose configuration a Reloader replaces.
type Target interface {
	// Plan returns the changes that Apply would make.
	Plan(c *config.Config) ([]config.Change, error)
	// Apply replaces the configuration, and returns the changes. After an error nothing has changed.
	Apply(c *config.Config) ([]config.Change, error)
}

type Options struct {
	// File is the configuration file.
	File string
	// Load reads the configuration and completes it. The Reloader never runs two calls at once.
	Load func() (*config.Config, error)
	Log  *slog.Logger
	// Began is called when a requested reload begins, and before a changed file is applied. over is called at the end
	// of the reload. Began may be nil.
	Began func() (over func())
	// Applied is called with the new configuration after Target applied it. It may be nil.
	Applied func(c *config.Config)
}

// Result holds the changes that a reload made, or that Check would make.
type Result struct {
	Changes []config.Change `json:"changes"`
	// Warnings are the warnings of the file.
	Warnings []string `json:"warnings"`
	// File is the name of the file, and Digest the config.Digest of its content.
	File   string `json:"file"`
	Digest string `json:"digest"`
}

// Status is the state of the current configuration.
type Status struct {
	// Hash is a short digest of the file, and of the files that it names.
	Hash     string    `json:"hash"`
	LoadedAt time.Time `json:"loaded_at"`
	// LastError says in short why the last reload failed. It is empty after a success.
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`
	// Pending are the paths of the changes that need a restart.
	Pending []string `json:"pending_restart,omitempty"`
}

// Counts are the values of the metrics about reloads.
type Counts struct {
	Good              bool // the last reload succeeded
	At                time.Time
	Succeeded, Faulty uint64
}

// Reloader reads and replaces the configuration. Its methods may be called concurrently.
type Reloader struct {
	o         Options
	follows   atomic.Bool // Follow reloads after a change
	now       atomic.Pointer[Status]
	succeeded atomic.Uint64
	faulty    atomic.Uint64

	mu       sync.Mutex // held while the configuration is read and applied; guards the rest
	target   Target
	files    []string // Config.Files of the last configuration
	print    string   // digest of the files when they were last read, even if that failed
	lastErr  string   // text of the last error; empty after a success
	warnings []string

	// again is when Follow next tries to apply content that was read but could not be applied. backoff doubles after
	// each failure.
	again   time.Time
	backoff time.Duration
}

// New returns a Reloader. The caller calls Load first, then Serve.
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
	before := r.digests() // before reading, so that a later write counts as a change
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

// Serve sets the target of reloads. It is called once, after Load and before the first reload.
func (r *Reloader) Serve(t Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = t
}

// took records that c was applied. before holds digests from before the files were read. The caller holds r.mu.
func (r *Reloader) took(c *config.Config, before map[string]string) {
	r.follows.Store(c.Reload == config.ReloadOn && !config.Stream(r.o.File))
	r.made(c, before)
	r.warnings, r.lastErr, r.backoff = c.Warnings, "", 0
}

// made records the files of c and their digest. The caller holds r.mu.
func (r *Reloader) made(c *config.Config, before map[string]string) {
	r.files = c.Files()
	r.print = r.prints(before)
}

// digests returns the digests of all files by path. The caller holds r.mu.
func (r *Reloader) digests() map[string]string {
	all := map[string]string{r.o.File: config.Digest(r.o.File)}
	for _, f := range r.files {
		all[f] = config.Digest(f)
	}
	return all
}

// prints returns one digest of all files. It takes digests that known has from there. The caller holds r.mu.
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

// load reads the file again. The caller holds r.mu.
func (r *Reloader) load() (*config.Config, error) {
	if err := r.once(); err != nil {
		return nil, err
	}
	return r.o.Load()
}

// once returns an error if one of the files is a Stream. The caller holds r.mu.
func (r *Reloader) once() error {
	for _, f := range append([]string{r.o.File}, r.files...) {
		if config.Stream(f) {
			return fmt.Errorf("%s is a pipe or a device, which can be read only once: to reload it, use a regular file", f)
		}
	}
	return nil
}

func brief(print string) string { return print[:min(len(print), 16)] }

func (r *Reloader) File() string { return r.o.File }

// Status returns the state of the current configuration.
func (r *Reloader) Status() Status { return *r.now.Load() }

// Counts returns the numbers of reloads since the start.
func (r *Reloader) Counts() Counts {
	s := r.now.Load()
	return Counts{s.LastError == "", s.LoadedAt, r.succeeded.Load(), r.faulty.Load()}
}

// Check returns the changes that Reload would make, and makes none.
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

// result returns the Result of a reload. own is the digest of the file.
func (r *Reloader) result(c *config.Config, changes []config.Change, own string) *Result {
	return &Result{append([]config.Change{}, changes...), append([]string{}, c.Warnings...), r.o.File, own}
}

// Reload reads the configuration and applies it. After an error nothing has changed. Each Reload waits for the Reload
// before it, and then reads the file.
func (r *Reloader) Reload() (*Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reload(true)
}

// reload reads and applies the configuration. Unless it was requested, it does not log an error that it logged last.
// The caller holds r.mu.
func (r *Reloader) reload(requested bool) (*Result, error) {
	before := r.digests() // before reading, so that a later write counts as a change
	if requested {
		defer r.o.Began()()
	}
	c, err := r.load()
	if err != nil {
		r.print, r.backoff = r.prints(before), 0
		r.failed(err, requested)
		return nil, err
	}
	for _, f := range c.Files() {
		if before[f] == "" {
			before[f] = config.Digest(f)
		}
	}
	if !requested {
		defer r.o.Began()()
	}
	changes, err := r.target.Apply(c)
	if err != nil {
		was := r.print
		if r.made(c, before); r.print != was {
			r.backoff = 0
		}
		r.backoff = min(max(2*r.backoff, every), longest)
		r.again = time.Now().Add(r.backoff)
		r.failed(err, requested)
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
	var lines []string
	for _, change := range changes {
		lines = append(lines, change.String())
		if change.Effect == config.EffectRestart {
			s.Pending = append(s.Pending, change.Path)
		}
	}
	r.now.Store(s)
	if len(changes) == 0 {
		r.o.Log.Info("configuration read again: nothing has changed", "file", r.o.File)
	} else {
		r.o.Log.Info("configuration reloaded", "file", r.o.File, "changes", len(changes), "what", clipped(lines))
	}
	if len(s.Pending) > 0 {
		r.o.Log.Warn("some changes of the configuration need a restart", "keys", strings.Join(s.Pending, ", "))
	}
	return r.result(c, changes, before[r.o.File]), nil
}

// maxLogged bounds the changes that one log line lists.
const maxLogged = 50

// clipped joins the first maxLogged lines, and adds the number of the others.
func clipped(lines []string) string {
	more := ""
	if n := len(lines) - maxLogged; n > 0 {
		lines, more = lines[:maxLogged], fmt.Sprintf("; and %d more", n)
	}
	return strings.Join(lines, "; ") + more
}

// failed records and logs the error of a reload. It ignores an error that is the last one again, unless the reload was
// requested. The caller holds r.mu.
func (r *Reloader) failed(err error, requested bool) {
	text := err.Error()
	if text == r.lastErr && !requested {
		return
	}
	r.lastErr = text
	r.faulty.Add(1)
	at := time.Now()
	s := r.Status()
	s.LastErrorAt, s.LastError = &at, "the file was not applied: see the log for the reason"
	if faults, ok := errors.AsType[config.Faults](err); ok {
		s.LastError = fmt.Sprintf("the file has a fault in line %d: see the log", faults[0].Line)
		if n := len(faults); n > 1 {
			s.LastError = fmt.Sprintf("the file has %d faults, the first in line %d: see the log", n, faults[0].Line)
		}
		for _, f := range faults {
			r.o.Log.Error("fault of the configuration", "err", f.String())
		}
		text = strings.TrimSuffix(s.LastError, ": see the log")
	}
	r.now.Store(&s)
	r.o.Log.Error("the configuration was not reloaded: nothing has changed", "file", r.o.File, "err", text)
}

// every is how often Follow checks the files. longest bounds the backoff.
const (
	every   = 2 * time.Second
	longest = time.Minute
)

// Follow checks the files until ctx ends. It reloads a changed configuration, unless its key reload is off. A change
// counts once two checks in a row found the same content.
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
			seen = r.poll(seen)
		} else {
			seen = ""
		}
	}
}

// poll reloads the configuration if the digest of the files is the same as before, the digest at the last check, but
// not the digest when they were last read. It returns the digest. After a failure it also reloads, after the backoff,
// when the digest did not change: the failure may be due to a file that a faulty file names, and which is unknown.
func (r *Reloader) poll(before string) (seen string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen = r.prints(nil)
	if r.target == nil || seen != before {
		return seen
	}
	if seen != r.print || r.lastErr != "" && (r.backoff == 0 || !time.Now().Before(r.again)) {
		_, _ = r.reload(false) // reload logs the error
	}
	return seen
}

package reload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/bridge/config"
)

// target is a bridge that stores the last configuration.
type target struct {
	mu    sync.Mutex
	c     *config.Config
	times int
	err   error
	busy  bool
	tried int
	meets func() // what happens while it applies one
}

func (t *target) Plan(c *config.Config) ([]config.Change, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return config.Diff(t.c, c), nil
}

func (t *target) Apply(c *config.Config) ([]config.Change, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy {
		panic("two reloads at once")
	}
	t.busy = true
	defer func() { t.busy = false }()
	t.tried++
	if t.meets != nil {
		t.meets()
	}
	if t.err != nil {
		return nil, t.err
	}
	changes := config.Diff(t.c, c)
	t.c = config.Running(t.c, c, changes)
	t.times++
	return changes, nil
}

// read returns the number of configurations.
func (t *target) read() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.times
}

func (t *target) timeout() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.c.Servers[0].Timeout
}

// lines is a log for several goroutines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// room is a folder with a file and its Reloader.
type room struct {
	t      *testing.T
	folder string
	*Reloader
	target *target
	log    *lines
	began  atomic.Int64
}

func newRoom(t *testing.T, text string) *room {
	r := &room{t: t, folder: t.TempDir(), log: &lines{}}
	r.write("bridge.yaml", text)
	file := filepath.Join(r.folder, "bridge.yaml")
	r.Reloader = New(Options{File: file, Load: func() (*config.Config, error) { return config.Load(file, nil) }, Log: slog.New(slog.NewTextHandler(r.log, nil)),
		Began: func() func() { r.began.Add(1); return func() {} }})
	c, err := r.Load()
	if err != nil {
		t.Fatal(err)
	}
	r.target = &target{c: c}
	r.Serve(r.target)
	return r
}

func (r *room) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.folder, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// follow runs Follow in a bubble.
func (r *room) follow(f func()) {
	synctest.Test(r.t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.Follow(ctx) })
		time.Sleep(every / 2) // what f does is between two looks
		f()
		stop()
		wg.Wait()
	})
}

func file(timeout, more string) string {
	return "servers:\n  one:\n    stdio: { command: sh }\n    timeout: " + timeout + "\n" + more
}

// A change is applied when two checks agree, and the same text changes nothing (O-050).
func TestFollow(t *testing.T) {
	r := newRoom(t, file("10s", ""))
	before := r.Status()
	r.follow(func() {
		time.Sleep(time.Minute)
		if r.target.read() != 0 || !r.Status().LoadedAt.Equal(before.LoadedAt) {
			t.Error("what has not changed was read again")
		}
		r.write("bridge.yaml", file("11s", ""))
		time.Sleep(every)
		if r.target.read() != 0 {
			t.Error("one look was enough")
		}
		r.write("bridge.yaml", file("12s", "")) // somebody is still writing
		time.Sleep(every)
		if r.target.read() != 0 {
			t.Error("two looks that do not agree were enough")
		}
		time.Sleep(every)
		if r.target.read() != 1 || r.target.timeout() != 12*time.Second {
			t.Errorf("read %d times, the time-out is %v", r.target.read(), r.target.timeout())
		}
		r.write("bridge.yaml", file("12s", "")) // the same once more
		time.Sleep(time.Minute)
		if r.target.read() != 1 {
			t.Error("the same text was read again")
		}
	})
	if now := r.Status(); now.Hash == before.Hash || now.LastError != "" || r.Counts().Succeeded != 1 {
		t.Errorf("status %+v, counts %+v", now, r.Counts())
	}
	if !strings.Contains(r.log.String(), `configuration reloaded`) || !strings.Contains(r.log.String(), "servers.one.timeout 10s → 12s (live)") {
		t.Errorf("log: %s", r.log)
	}
}

// The link of a ConfigMap is replaced: the name stays, and its target changes.
func TestFollowLink(t *testing.T) {
	r := newRoom(t, file("10s", ""))
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(r.folder, "..v"+version), 0o700); err != nil {
			t.Fatal(err)
		}
		r.write("..v"+version+"/bridge.yaml", file("2"+version+"s", ""))
	}
	link := func(version string) {
		if err := errors.Join(os.Symlink("..v"+version, filepath.Join(r.folder, "..new")), os.Rename(filepath.Join(r.folder, "..new"), filepath.Join(r.folder, "..data"))); err != nil {
			t.Skip("no links here: ", err)
		}
	}
	link("1")
	if err := errors.Join(os.Remove(filepath.Join(r.folder, "bridge.yaml")), os.Symlink(filepath.Join("..data", "bridge.yaml"), filepath.Join(r.folder, "bridge.yaml"))); err != nil {
		t.Skip("no links here: ", err)
	}
	r.follow(func() {
		time.Sleep(3 * every)
		if r.target.timeout() != 21*time.Second {
			t.Errorf("the time-out is %v", r.target.timeout())
		}
		link("2")
		time.Sleep(3 * every)
		if r.target.timeout() != 22*time.Second {
			t.Errorf("the time-out is %v", r.target.timeout())
		}
	})
}

// A fault changes nothing. It is logged once with its line, and ends when the file, or a file that
// it names, is valid again (O-051).
func TestFault(t *testing.T) {
	r := newRoom(t, file("10s", ""))
	r.follow(func() {
		r.write("bridge.yaml", file("11s", "    nonsense: 1\n"))
		time.Sleep(time.Minute)
		if r.target.timeout() != 10*time.Second || r.target.read() != 0 {
			t.Error("a file with a fault was taken")
		}
		if n := r.began.Load(); n != 0 {
			t.Errorf("a file with a fault was said to be applied %d times", n)
		}
		if s := r.Status(); s.LastError != "the file has a fault in line 5: see the log" || s.LastErrorAt == nil || r.Counts().Good {
			t.Errorf("status %+v", s)
		}
		if n := strings.Count(r.log.String(), "unknown key"); n != 1 || r.Counts().Faulty != 1 {
			t.Errorf("said %d times: %s", n, r.log)
		}
		r.write("bridge.yaml", strings.Replace(file("11s", ""), "sh }", "sh, env_file: a.env }", 1))
		time.Sleep(time.Minute)
		if s := r.Status(); s.LastError == "" || r.Counts().Faulty != 2 {
			t.Errorf("status %+v, counts %+v", s, r.Counts())
		}
		r.write("a.env", "A=1\n") // which the file that counts does not name
		time.Sleep(3 * every)
		if s := r.Status(); s.LastError != "" || r.target.timeout() != 11*time.Second {
			t.Errorf("status %+v, the time-out is %v", s, r.target.timeout())
		}
		r.write("a.env", "A=2\n")
		time.Sleep(3 * every)
		if r.target.read() != 2 {
			t.Error("another env_file was not noticed")
		}
	})
	r.target.err = errors.New("the bridge is stopping")
	if _, err := r.Reload(); err == nil || r.Status().LastError != "the file was not applied: see the log for the reason" {
		t.Errorf("%v, status %+v", err, r.Status())
	}
}

// reload: off stops following as soon as it is read.
func TestOff(t *testing.T) {
	m := newRoom(t, file("10s", ""))
	m.follow(func() {
		m.write("bridge.yaml", file("10s", "reload: off\n"))
		time.Sleep(3 * every)
		m.write("bridge.yaml", file("11s", "reload: off\n"))
		time.Sleep(time.Minute)
		if m.target.timeout() != 10*time.Second {
			t.Error("the file is looked at")
		}
		r, err := m.Reload()
		if err != nil || len(r.Changes) != 1 || m.target.timeout() != 11*time.Second {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Check changes nothing. Status lists changes until the restart that they need (O-055, O-057).
func TestPending(t *testing.T) {
	m := newRoom(t, file("10s", ""))
	m.write("bridge.yaml", file("11s", "heartbeat: 5s\n"))
	r, err := m.Check()
	if err != nil || len(r.Changes) != 2 || m.target.read() != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for range 2 {
		if _, err := m.Reload(); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(m.Status().Pending); got != "[heartbeat]" {
			t.Errorf("pending: %s", got)
		}
	}
	m.write("bridge.yaml", file("11s", ""))
	if _, err := m.Reload(); err != nil || len(m.Status().Pending) > 0 {
		t.Errorf("%v, %+v", err, m.Status())
	}
}

// After many concurrent edits, the last one is applied (O-052).
func TestManyEdits(t *testing.T) {
	r := newRoom(t, file("10s", ""))
	r.follow(func() {
		var wg sync.WaitGroup
		for n := range 20 {
			r.write("bridge.yaml", file(fmt.Sprint(20+n, "s"), ""))
			wg.Go(func() { _, _ = r.Reload() })
			time.Sleep(time.Duration(n) * 100 * time.Millisecond)
		}
		wg.Wait()
		time.Sleep(3 * every)
		if r.target.timeout() != 39*time.Second {
			t.Errorf("the last edit is not what counts: %v", r.target.timeout())
		}
	})
}

// A configuration that was read but not applied is tried again with a growing backoff, and at once
// after a change.
func TestNotApplied(t *testing.T) {
	r := newRoom(t, file("10s", ""))
	r.target.err = errors.New("it cannot be had now")
	tried := func() int {
		r.target.mu.Lock()
		defer r.target.mu.Unlock()
		return r.target.tried
	}
	r.write("a.env", "A=1\n")
	r.follow(func() {
		r.write("bridge.yaml", strings.Replace(file("11s", ""), "sh }", "sh, env_file: a.env }", 1))
		time.Sleep(time.Hour)
		if n := tried(); n < 60 || n > 70 || int(r.began.Load()) != n || r.Counts().Faulty != 1 {
			t.Errorf("tried %d times in an hour, and said so %d times; counts %+v", n, r.began.Load(), r.Counts())
		}
		before := tried()
		r.write("a.env", "A=2\n")
		time.Sleep(3 * every)
		if tried() == before {
			t.Error("what the configuration that was not applied is made of is not looked at")
		}
		r.target.mu.Lock()
		r.target.err = nil
		r.target.mu.Unlock()
		time.Sleep(longest + every)
		if r.target.timeout() != 11*time.Second || r.Status().LastError != "" {
			t.Errorf("what can be applied now is not: %v, %+v", r.target.timeout(), r.Status())
		}
	})
}

// A write during a reload is a change, to the file and to the files that it names.
func TestWrittenMeanwhile(t *testing.T) {
	for _, name := range []string{"a.env", "b.env", "bridge.yaml"} { // the first is named from the beginning
		r := newRoom(t, file("10s", ""))
		made := func(timeout, env string) string {
			return strings.Replace(file(timeout, ""), "sh }", "sh, env_file: "+env+" }", 1)
		}
		env := "b.env"
		if name == "a.env" {
			env = name
		}
		r.write(env, "A=1\n")
		if name == "a.env" {
			r.write("bridge.yaml", made("10s", env))
			if _, err := r.Reload(); err != nil {
				t.Fatal(err)
			}
		}
		var once sync.Once
		r.target.meets = func() {
			once.Do(func() {
				if name == "bridge.yaml" {
					r.write(name, made("12s", env))
				} else {
					r.write(name, "A=2\n")
				}
			})
		}
		before := r.target.read()
		r.follow(func() {
			r.write("bridge.yaml", made("11s", env))
			time.Sleep(time.Minute)
		})
		if n := r.target.read() - before; n != 2 {
			t.Errorf("%s: applied %d times, want 2", name, n)
		}
	}
}

// A pipe is read once, and never again.
func TestPipe(t *testing.T) {
	if _, err := os.Stat("/dev/fd/0"); err != nil {
		t.Skip("no names of pipes here: ", err)
	}
	pipe := func(text string) string {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		_, _ = w.WriteString(text)
		w.Close()
		return fmt.Sprint("/dev/fd/", r.Fd())
	}
	for _, of := range []string{"file", "part"} {
		name := filepath.Join(t.TempDir(), "bridge.yaml")
		once := pipe("A=1\n")
		if of == "file" {
			name = pipe(file("10s", ""))
			once = name
		} else if err := os.WriteFile(name, []byte(strings.Replace(file("10s", ""), "sh }", "sh, env_file: "+once+" }", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		log := &lines{}
		r := New(Options{File: name, Load: func() (*config.Config, error) { return config.Load(name, nil) }, Log: slog.New(slog.NewTextHandler(log, nil))})
		c, err := r.Load()
		if err != nil {
			t.Fatalf("%s: %v", of, err)
		}
		if of == "part" && c.Servers[0].Stdio.Env["A"] == "" && !strings.Contains(fmt.Sprintf("%+v", c.Servers[0].Stdio), "A:1") {
			t.Errorf("%s: %+v", of, c.Servers[0].Stdio)
		}
		b := &target{c: c}
		r.Serve(b)
		for _, ask := range []func() (*Result, error){r.Reload, r.Check} {
			if _, err := ask(); err == nil || !strings.Contains(err.Error(), once+" is a pipe") {
				t.Errorf("%s: %v", of, err)
			}
		}
		if of == "file" && r.follows.Load() {
			t.Error("a pipe is looked at")
		}
		if b.read() != 0 || !strings.Contains(log.String(), "cannot be reloaded") {
			t.Errorf("%s: applied %d times; log: %s", of, b.read(), log)
		}
	}
}

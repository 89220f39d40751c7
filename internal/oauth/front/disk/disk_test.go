package disk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func put(t *testing.T, d *Disk, key, old, value string, life time.Duration) bool {
	t.Helper()
	var o, v []byte
	if old != "" {
		o = []byte(old)
	}
	if value != "" {
		v = []byte(value)
	}
	ok, err := d.Swap(context.Background(), key, o, v, life)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func get(t *testing.T, d *Disk, key string) string {
	t.Helper()
	v, err := d.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(v)
}

// Values outlive a restart, except expired ones.
func TestRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d := New(dir)
	put(t, d, "login:1", "", "one", time.Hour)
	put(t, d, "login:2", "", "two", time.Hour)
	put(t, d, "login:2", "two", "", 0)
	put(t, d, "code:1", "", "short", time.Nanosecond)
	for id, life := range map[string]time.Duration{"long": time.Hour, "short": time.Nanosecond} {
		if err := d.End(t.Context(), id, life); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(t.Context(), "login:1"); err == nil {
		t.Error("it can be read when it is closed")
	}
	if info, err := os.Stat(filepath.Join(dir, name)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v", info, err)
	}
	d = New(dir)
	defer d.Close()
	if one, two, code := get(t, d, "login:1"), get(t, d, "login:2"), get(t, d, "code:1"); one != "one" || two != "" || code != "" {
		t.Errorf("after a restart: %q %q %q", one, two, code)
	}
	if ids, _, err := d.Ended(t.Context(), ""); err != nil || len(ids) != 1 || ids[0] != "long" {
		t.Errorf("after a restart, these have ended: %q %v", ids, err)
	}
}

// The store is bounded: it drops expired values first, then the one that expires next.
func TestBound(t *testing.T) {
	d := New(t.TempDir())
	d.max = 4
	defer d.Close()
	put(t, d, "code:1", "", "other", time.Hour)
	for i := range 4 {
		put(t, d, fmt.Sprint("login:", i), "", "x", time.Hour+time.Duration(i)*time.Minute)
	}
	put(t, d, "login:0", "x", "y", 2*time.Hour) // a use extends it
	put(t, d, "login:4", "", "x", time.Hour+10*time.Minute)
	all := ""
	for i := range 5 {
		all += get(t, d, fmt.Sprint("login:", i)) + ","
	}
	if all != "y,,x,x,x," || get(t, d, "code:1") != "other" {
		t.Errorf("there are %s", all)
	}
	put(t, d, "login:2", "x", "z", time.Nanosecond)
	put(t, d, "login:5", "", "x", time.Minute)
	if got := get(t, d, "login:2") + get(t, d, "login:3") + get(t, d, "login:4") + get(t, d, "login:5"); got != "xxx" {
		t.Errorf("when one has ended there are %s", got)
	}
}

// Faults of the folder are reported at the start, with the fix.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := New(filepath.Join(dir, "file", "x")).Open(); err == nil || !strings.Contains(err.Error(), "state_dir cannot be created") {
		t.Errorf("below a file: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("this is no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := New(dir).Open(); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("another file: %v", err)
	}
	shared := t.TempDir()
	first := New(shared)
	if err := first.Open(); err != nil {
		t.Fatal(err)
	}
	second := New(shared)
	second.wait = time.Millisecond
	if err := second.Open(); err == nil || !strings.Contains(err.Error(), "another process uses state_dir") {
		t.Errorf("twice: %v", err)
	}
	<-first.Opened()
	select {
	case <-second.Opened():
		t.Error("the second is said to be open")
	default:
	}
	put(t, first, "login:1", "", "one", time.Hour)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got := get(t, second, "login:1"); got != "one" { // it only had to wait
		t.Errorf("when the first has ended: %q", got)
	}
	_ = second.Close()
}

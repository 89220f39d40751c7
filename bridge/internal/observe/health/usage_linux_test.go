package health

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A child that leads a group is told with its memory and its processor time, and so is what
// it starts (O-034).
func TestUsage(t *testing.T) {
	before := Usage()[syscall.Getpgrp()]
	if before.RSS < 1<<20 {
		t.Errorf("this process and its group use %d bytes", before.RSS)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	c := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo started; cat; :")
	c.SysProcAttr, c.Stdout = &syscall.SysProcAttr{Setpgid: true}, write
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	if _, err := read.Read(make([]byte, 8)); err != nil { // it runs
		t.Fatal(err)
	}
	if got := Usage()[c.Process.Pid]; got.RSS < 100<<10 || got.CPU <= 0 || got.CPU > time.Minute {
		t.Errorf("a child uses %d bytes, and has had %v", got.RSS, got.CPU)
	}
	_ = in.Close()
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	_ = c.Wait()
	if _, err := io.Copy(io.Discard, read); err != nil { // until what the child has started has ended, too
		t.Fatal(err)
	}
	if got := Usage()[c.Process.Pid]; got.RSS > 0 {
		t.Errorf("a child that has ended uses %d bytes", got.RSS)
	}
}

// A program may have any name.
func TestStat(t *testing.T) {
	const rest = " S 1 42 42 0 -1 4194560 1 0 0 0 100 20 3 4 20 0 1 0 5 1000 7 18446744073709551615"
	for text, want := range map[string][3]int64{
		"42 (sh)" + rest: {42, 7, 127}, "42 (a) b) c" + ")" + rest: {42, 7, 127}, "42 (sh) S 1 42": {}, "": {}, "42": {},
		"42 (sh) S 1 x 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5 1000 7 1":   {},
		"42 (sh) S 1 42 42 0 -1 4194560 1 0 0 0 0 x 0 0 20 0 1 0 5 1000 7 1":  {},
		"42 (sh) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 -1 0 20 0 1 0 5 1000 7 1": {},
	} {
		group, pages, ticks, ok := stat([]byte(text))
		if ok != (want[0] > 0) || ok && (int64(group) != want[0] || pages != want[1] || ticks != want[2]) {
			t.Errorf("stat(%q) = %d, %d, %d, %t", text, group, pages, ticks, ok)
		}
	}
}

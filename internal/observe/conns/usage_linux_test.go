package conns

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A child that leads a group is told with its memory, and so is what it starts.
func TestMemory(t *testing.T) {
	before := Memory()[syscall.Getpgrp()]
	if before < 1<<20 {
		t.Errorf("this process and its group use %d bytes", before)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	c := exec.Command("sh", "-c", "echo started; cat; :")
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
	if got := Memory()[c.Process.Pid]; got < 100<<10 {
		t.Errorf("a child uses %d bytes", got)
	}
	_ = in.Close()
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	_ = c.Wait()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); Memory()[c.Process.Pid] > 0; { // what the child has started may end after it
		select {
		case <-late:
			t.Fatalf("a child that has ended uses %d bytes", Memory()[c.Process.Pid])
		case <-tick.C:
		}
	}
}

// A program may have any name.
func TestStat(t *testing.T) {
	const rest = " S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5 1000 7 18446744073709551615"
	for text, want := range map[string][2]int64{
		"42 (sh)" + rest: {42, 7}, "42 (a) b) c" + ")" + rest: {42, 7}, "42 (sh) S 1 42": {}, "": {}, "42": {},
		"42 (sh) S 1 x 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5 1000 7 1": {},
	} {
		group, pages, ok := stat([]byte(text))
		if ok != (want[0] > 0) || ok && (int64(group) != want[0] || pages != want[1]) {
			t.Errorf("stat(%q) = %d, %d, %t", text, group, pages, ok)
		}
	}
}

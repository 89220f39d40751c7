package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A real terminal is recognized, with its width.
func TestConsoleOnTerminal(t *testing.T) {
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a terminal: %v", err)
	}
	defer control.Close()
	fd := int(control.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 70}); err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a terminal: %v", err)
	}
	defer tty.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	c := newConsole(tty, tty, tty)
	if !c.asks() || !c.outTerm || c.width != 70 || c.errWidth != 70 || c.bold("a") != "\x1b[1ma\x1b[0m" || c.text("\x1b") != "␛" {
		t.Errorf("on a terminal: %+v", c)
	}
	t.Setenv("NO_COLOR", "1")
	if c := newConsole(tty, tty, tty); c.bold("a") != "a" {
		t.Error("NO_COLOR is not heeded")
	}
	var out bytes.Buffer
	if c := newConsole(tty, &out, tty); c.width != 0 || c.bold("a") != "a" || c.text("\x1b") != "\x1b" || !c.asks() {
		t.Errorf("with stdout elsewhere: %+v", c)
	}
	if c := newConsole(&out, tty, tty); c.asks() {
		t.Error("somebody is asked although stdin is no terminal")
	}
}

// Package terminaltest makes terminals for tests.
package terminaltest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal is a terminal, including the user's end.
type Terminal struct {
	File *os.File // the end for the program under test

	t       testing.TB
	control *os.File
	out     *bufio.Reader
}

// New makes a terminal with a number of columns. Where there are no terminals, New skips the test.
func New(t testing.TB, columns int) *Terminal {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a terminal: %v", err)
	}
	t.Cleanup(func() { control.Close() })
	fd := int(control.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a terminal: %v", err)
	}
	t.Cleanup(func() { file.Close() })
	return &Terminal{
		File:    file,
		t:       t,
		control: control,
		out:     bufio.NewReader(control),
	}
}

// Type types text.
func (t *Terminal) Type(text string) {
	t.t.Helper()
	if _, err := io.WriteString(t.control, text); err != nil {
		t.t.Fatal(err)
	}
}

// Lines returns the next lines on the terminal.
func (t *Terminal) Lines(n int) string {
	t.t.Helper()
	var all strings.Builder
	for range n {
		line, err := t.out.ReadString('\n')
		if err != nil {
			t.t.Fatal(err)
		}
		all.WriteString(strings.ReplaceAll(line, "\r\n", "\n"))
	}
	return all.String()
}

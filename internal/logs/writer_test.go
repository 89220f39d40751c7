package logs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// place is a Sink that is stuck until it is freed, and may fail. It says in its own log what was left out.
type place struct {
	w     *Writer
	text  bytes.Buffer
	stuck chan struct{}
	err   error // of each write, which still takes room bytes
	room  int
}

func (p *place) Write(b []byte) (int, error) {
	<-p.stuck
	if p.err != nil {
		n, _ := p.text.Write(b[:p.room])
		return n, p.err
	}
	return p.text.Write(b)
}

func (p *place) Failed(error) {}

func (p *place) LeftOut(lines uint64) { fmt.Fprintf(p.w, "left out: %d\n", lines) }

func (p *place) Follow() bool { return false }

func newPlace(most int) *place {
	p := &place{stuck: make(chan struct{})}
	p.w = NewWriter(p, most, 0)
	return p
}

// Lines to a place that is stuck are left out, and nobody waits. When it takes lines again, those that
// waited come in order, and then how many are missing.
func TestWriterStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(100)
		fmt.Fprintln(p.w, "first")
		synctest.Wait() // it is being written
		for i := range 10_000 {
			fmt.Fprintf(p.w, "line %04d\n", i)
		}
		if len(p.w.queue) > 100 || p.w.Lost() != 9990 {
			t.Errorf("%d bytes wait, %d lines lost; want 100 and 9990", len(p.w.queue), p.w.Lost())
		}
		close(p.stuck)
		synctest.Wait()
		want := "first\n"
		for i := range 10 {
			want += fmt.Sprintf("line %04d\n", i)
		}
		if got := p.text.String(); got != want+"left out: 9990\n" {
			t.Errorf("written:\n%s", got)
		}
		p.w.Close(nil)
		if _, err := p.w.Write([]byte("late\n")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// Close waits for a place that is stuck for so long only. How many lines are missing is said at the end, too.
func TestWriterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(20)
		for range 10 {
			fmt.Fprintln(p.w, "1234567890123456789")
			synctest.Wait()
		}
		late := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(late) })
		if p.w.Close(late) {
			t.Error("a stuck place was closed in good order")
		}
		close(p.stuck)
		if !p.w.Close(nil) || !strings.HasSuffix(p.text.String(), "left out: 8\n") {
			t.Errorf("written:\n%s", p.text.String())
		}
	})
}

// After a fault, such as a full disk, the next line is whole although the last one was cut off, and the number of lost
// lines is said, without another line.
func TestWriterFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(100)
		close(p.stuck)
		p.err, p.room = errors.New("no space left on device"), 6
		fmt.Fprint(p.w, "one\ntwo\n")
		synctest.Wait()
		p.err = nil
		fmt.Fprintln(p.w, "three")
		synctest.Wait()
		if got := p.text.String(); got != "one\ntw\nthree\nleft out: 1\n" {
			t.Errorf("written: %q", got)
		}
		p.w.Close(nil)
	})
}

// With a place that takes lines, none is lost, whoever writes.
func TestWriterKeepsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(1 << 20)
		close(p.stuck)
		want := ""
		for i := range 10_000 {
			line := fmt.Sprintf("line %d\n", i)
			want += line
			fmt.Fprint(p.w, line)
		}
		p.w.Close(nil)
		if p.text.String() != want || p.w.Lost() != 0 {
			t.Errorf("%d of %d bytes written, %d lines lost", p.text.Len(), len(want), p.w.Lost())
		}
	})
}

// Settle returns when the lines so far are written. It waits for a place that is stuck until it is told to stop.
func TestWriterSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(100)
		fmt.Fprintln(p.w, "first")
		late := make(chan struct{})
		began := time.Now()
		time.AfterFunc(time.Second, func() { close(late) })
		if p.w.Settle(late); time.Since(began) != time.Second {
			t.Errorf("Settle waited for %v", time.Since(began))
		}
		close(p.stuck)
		fmt.Fprintln(p.w, "second")
		if p.w.Settle(nil); p.text.String() != "first\nsecond\n" {
			t.Errorf("after Settle: %q", p.text.String())
		}
		p.w.Close(nil)
		p.w.Settle(nil) // nothing is to come
	})
}

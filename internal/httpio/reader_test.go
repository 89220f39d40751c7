package httpio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/tmaxmax/go-sse"
)

// read returns what a Reader makes of a stream, one line for each event, and
// the error at its end.
func read(r io.Reader, limit int) ([]string, error) {
	var all []string
	events := NewReader(r, limit)
	for {
		r, err := events.Next()
		if err != nil {
			if _, again := events.Next(); !errors.Is(again, err) {
				return all, fmt.Errorf("after %w came %w", err, again)
			}
			return all, err
		}
		s := r.Type
		if r.HasID {
			s += fmt.Sprintf(" id=%q", r.ID)
		}
		if r.HasRetry {
			s += fmt.Sprintf(" retry=%v", r.Retry)
		}
		if r.Data != nil {
			s += fmt.Sprintf(" data=%q", r.Data.B)
		}
		if r.Oversized != nil {
			s += fmt.Sprintf(" over=%s", r.Oversized.ID())
		}
		all = append(all, s)
		r.Data.Free()
	}
}

// The rules of A8, each whatever ends the lines and however the bytes arrive.
func TestReader(t *testing.T) {
	long := strings.Repeat("x", 5*maxText)
	for _, test := range []struct {
		name, stream string
		want         []string
	}{
		{"a message", "event: message\ndata: {}\n\n", []string{`message data="{}"`}},
		{"without event", "data: {}\n\n", []string{`message data="{}"`}},
		{"without space", "event:x\ndata:{}\nid:7\n\n", []string{`x id="7" data="{}"`}},
		{"one space is left out, not two", "data:  a \n\n", []string{`message data=" a "`}},
		{"a tab is no space", "data:\ta\n\n", []string{`message data="\ta"`}},
		{"lines of data are joined", "data: {\ndata:  \"a\":\ndata\ndata: 1}\n\n", []string{`message data="{\n \"a\":\n\n1}"`}},
		{"empty lines of data", "data\ndata\n\n", []string{`message data="\n"`}},
		{"empty data with an id (R-038)", "id: s-0\ndata:\n\nid: s-1\ndata: {}\n\n", []string{`message id="s-0"`, `message id="s-1" data="{}"`}},
		{"only an id", "id: s-0\n\n", []string{`message id="s-0"`}},
		{"an empty id", "id\ndata: 1\n\nid:\ndata: 2\n\ndata: 3\n\n", []string{`message id="" data="1"`, `message id="" data="2"`, `message data="3"`}},
		{"an id with NUL", "id: a\x00b\ndata: 1\n\n", []string{`message data="1"`}},
		{"the last id counts", "id: 1\nid: 2\ndata: x\n\n", []string{`message id="2" data="x"`}},
		{"the last type counts", "event: a\nevent: b\ndata: x\n\nevent: a\nevent\ndata: x\n\n", []string{`b data="x"`, `message data="x"`}},
		{"a type is of one event", "event: a\ndata: 1\n\ndata: 2\n\n", []string{`a data="1"`, `message data="2"`}},
		{"only a type", "event: a\n\ndata: 1\n\n", []string{`message data="1"`}},
		{"retry", "retry: 1500\n\nretry:0\ndata: x\n\n", []string{`message retry=1.5s`, `message retry=0s data="x"`}},
		{"retry that is none", "retry: -1\nretry: 1.5\nretry\nretry: +3\nretry: 1 \nretry: 0x10\ndata: x\n\n", []string{`message data="x"`}},
		{"retry without end", "retry: 99999999999\n\nretry: 99999999999999999999999\n\n", []string{`message retry=24h0m0s`, `message retry=24h0m0s`}},
		{"retry before the end", "retry: 2000\n", []string{`message retry=2s`}},
		{"comments", ": ping\n\n:\n\n:data: x\ndata: 1\n: more\ndata: 2\n\n", []string{`message data="1\n2"`}},
		{"unknown fields", "dat: a\ndatax: a\ndata : a\n data: a\nDATA: a\nx\ndata: b\n\n", []string{`message data="b"`}},
		{"a long comment", ":" + long + "\ndata: 1\n:" + long + "\ndata: 2\n\n", []string{`message data="1\n2"`}},
		{"long data", "data:" + long + "\n\n", []string{`message data="` + long + `"`}},
		{"empty lines", "\n\n\ndata: 1\n\n\n\ndata: 2\n\n\n", []string{`message data="1"`, `message data="2"`}},
		{"a mark", "\xef\xbb\xbfdata: 1\n\n\xef\xbb\xbfdata: 2\n\n", []string{`message data="1"`}},
		{"a mark and a comment", "\xef\xbb\xbf:\n\ndata: 1\n\n", []string{`message data="1"`}},
		{"half a mark", "\xef\xbbdata: 1\n\ndata: 2\n\n", []string{`message data="2"`}},
		{"only a mark", "\xef\xbb\xbf", nil},
		{"not finished", "data: 1\n\nid: 5\ndata: 2\n", []string{`message data="1"`}},
		{"not finished at all", "data: 1\n\ndata: 2", []string{`message data="1"`}},
		{"nothing", "", nil},
		{"UTF-8", "data: é😀\u2028\u0085\v\n\n", []string{"message data=\"é😀\\u2028\\u0085\\v\""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, end := range []string{"\n", "\r\n", "\r"} {
				stream := strings.ReplaceAll(test.stream, "\n", end)
				if got, err := read(strings.NewReader(stream), 1<<20); err != io.EOF || !same(got, test.want) {
					t.Fatalf("read(%.200q) = %.300q, %v, want %.300q, EOF", stream, got, err, test.want)
				}
				if got, err := read(iotest.OneByteReader(strings.NewReader(stream)), 1<<20); err != io.EOF || !same(got, test.want) {
					t.Fatalf("read(%.200q) byte by byte = %.300q, %v, want %.300q, EOF", stream, got, err, test.want)
				}
				for at := 0; at < len(stream) && len(stream) < 1000; at++ {
					if got, err := read(parts(stream[:at], stream[at:]), 1<<20); err != io.EOF || !same(got, test.want) {
						t.Fatalf("read(%q + %q) = %q, %v, want %q, EOF", stream[:at], stream[at:], got, err, test.want)
					}
				}
			}
		})
	}
}

func same(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }

// parts returns a reader of two reads.
func parts(a, b string) io.Reader { return io.MultiReader(strings.NewReader(a), strings.NewReader(b)) }

// A line that ends with CR is over, though an LF may follow: nobody waits for what does not come.
func TestReaderEndsWithCR(t *testing.T) {
	in, out := io.Pipe()
	r := NewReader(in, 100)
	go func() {
		_, _ = out.Write([]byte("data: 1\r\r"))
	}()
	if e, err := r.Next(); err != nil || string(e.Data.B) != "1" { // or it hangs
		t.Errorf("Next = %v, %v", e, err)
	}
	_ = in.Close()
}

// what is larger than the limit is not kept, and the id of the answer in it is found, wherever it stands.
func TestReaderLimit(t *testing.T) {
	pad := strings.Repeat("x", 300)
	fits := func(n int) string { return strings.Repeat("y", n) }
	for _, test := range []struct{ name, stream, want string }{
		{"exactly the limit", "data: " + fits(200) + "\n\n", `message data="` + fits(200) + `"`},
		{"one more", "data: " + fits(201) + "\n\n", `message over=`},
		{"the limit in two lines", "data: " + fits(99) + "\ndata: " + fits(100) + "\n\n", `message data="` + fits(99) + `\n` + fits(100) + `"`},
		{"one more in two lines", "data: " + fits(100) + "\ndata: " + fits(100) + "\n\n", `message over=`},
		{"id first", `data: {"jsonrpc":"2.0","id":7,"result":"` + pad + "\"}\n\n", `message over=7`},
		{"id last", `data: {"jsonrpc":"2.0","result":{"id":1,"x":"` + pad + "\"},\ndata: \"id\":\"a\"}\nid: 5\n\n", `message id="5" over="a"`},
		{"a request", `data: {"jsonrpc":"2.0","id":7,"method":"` + pad + "\"}\n\n", `message over=`},
		{"not an answer", "event: x\ndata: " + pad + pad + "\n\n", `x over=`},
	} {
		for _, r := range []io.Reader{
			strings.NewReader(test.stream + "data: next\n\n"),
			iotest.OneByteReader(strings.NewReader(test.stream + "data: next\n\n")),
		} {
			got, err := read(r, 200)
			if err != io.EOF || len(got) != 2 || got[0] != test.want || got[1] != `message data="next"` {
				t.Errorf("%s: %.300q, %v, want %q and the next", test.name, got, err, test.want)
			}
		}
	}
}

// The end of an event that is far too large is not waited for, nor is it kept: what
// was seen of it comes with the error, which remains.
func TestReaderEndless(t *testing.T) {
	const limit = 100 << 10
	for _, test := range []struct{ name, begin, more, id, over string }{
		{"id first", "retry: 5\nid: 7\ndata: {\"id\":3,\"result\":\"", "x", "7", "3"},
		{"id last", "data: {\"result\":\"", "x", "", ""},
		{"an id without end", "data: {\"id\":", "1", "", ""},
		{"lines", "id: 7\ndata: {\"id\":3,\"result\":[\n", "data: 1,\r\n", "7", "3"},
	} {
		poured := &endless{event: []byte(strings.Repeat(test.more, 1000))}
		in := &counted{r: io.MultiReader(strings.NewReader("data: before\n\n"+test.begin), poured)}
		r := NewReader(in, limit)
		if e, err := r.Next(); err != nil || string(e.Data.B) != "before" {
			t.Fatalf("%s: %v, %v", test.name, e, err)
		}
		e, err := r.Next()
		if !errors.Is(err, ErrEndless) || e.Data != nil || e.Oversized == nil || string(e.Oversized.ID()) != test.over || e.ID != test.id {
			t.Errorf("%s: %+v, %v", test.name, e, err)
		}
		if most := (maxOver + 1) * limit * len(test.more); in.n > most || r.data != nil || r.wide != nil {
			t.Errorf("%s: %d bytes were read, want %d at most, and nothing kept", test.name, in.n, most)
		}
		if e, err := r.Next(); !errors.Is(err, ErrEndless) || e.Oversized != nil {
			t.Errorf("%s: then %+v, %v", test.name, e, err)
		}
	}
	// One that ends in time is reported as ever.
	if got, err := read(strings.NewReader("data: {\"result\":\""+strings.Repeat("x", (maxOver-1)*limit)+"\",\"id\":3}\n\ndata: next\n\n"), limit); err != io.EOF || !same(got, []string{"message over=3", `message data="next"`}) {
		t.Errorf("read = %.100q, %v", got, err)
	}
}

// counted counts what is read.
type counted struct {
	r io.Reader
	n int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += n
	return n, err
}

// A field that has no end is refused, and the stream with it: what follows could be taken for something else.
func TestReaderLongField(t *testing.T) {
	for _, stream := range []string{
		"id: data: x" + strings.Repeat("x", 4*maxText) + "\ndata: 1\n\n",
		strings.Repeat("data", maxText) + ": x\n\n",
		"event:" + strings.Repeat(" ", maxText) + "\ndata: 1\n\n",
	} {
		for _, r := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
			if got, err := read(r, 1<<20); err == nil || err == io.EOF || len(got) > 0 {
				t.Errorf("read(%.20q…) = %q, %v, want an error", stream, got, err)
			}
		}
	}
}

// Bytes without an event have a bound, from one event to the next: a little gzip makes many of them.
func TestReaderQuiet(t *testing.T) {
	const limit = 100 << 10
	for _, more := range []string{"\n", "\r\n", ": ping\n\n", "event: x\n\n", "id: 1\n\n", "retry: 1\n\n", "unknown\n", "data:\n\n"} {
		half := strings.Repeat(more, limit/2/len(more))
		var got []string
		in := &counted{r: io.MultiReader(strings.NewReader(half+"data: 1\n\n"+half+"data: 2\n\n"), &endless{event: []byte(more)})}
		r := NewReader(in, limit)
		for {
			e, err := r.Next()
			if err != nil {
				if !errors.Is(err, ErrQuiet) || in.n > 10*limit {
					t.Errorf("%q: %v after %d bytes, want %v", more, err, in.n, ErrQuiet)
				}
				break
			}
			if e.Data != nil {
				got = append(got, string(e.Data.B))
			}
		}
		if !same(got, []string{"1", "2"}) {
			t.Errorf("%q: the events are %q", more, got)
		}
	}
}

// Comments that keep a stream alive do not end it, however long it has no event.
func TestReaderAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ping = ": ping - 2026-01-01 00:00:00.000000+00:00\r\n\r\n"
		in := &endless{event: []byte(ping)}
		beats, limit := 0, 100<<10
		r := NewReader(io.MultiReader(readerFunc(func(p []byte) (int, error) {
			if beats++; beats*len(ping) > 10*limit {
				return 0, io.EOF
			}
			time.Sleep(15 * time.Second)
			return in.Read(p[:len(ping)])
		}), strings.NewReader("data: 1\n\n")), limit)
		if e, err := r.Next(); err != nil || e.Data == nil {
			t.Errorf("after %d comments: %v", beats, err)
		}
	})
}

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (r readerFunc) Read(p []byte) (int, error) { return r(p) }

// The error of the reader below comes through, after a retry that came before it.
func TestReaderError(t *testing.T) {
	broken := errors.New("broken")
	got, err := read(io.MultiReader(strings.NewReader("data: 1\n\nretry: 7\ndata: 2"), iotest.ErrReader(broken)), 100)
	if !errors.Is(err, broken) || !same(got, []string{`message data="1"`, `message retry=7ms`}) {
		t.Errorf("read = %q, %v", got, err)
	}
}

// A silent stream holds little: the large window and what a long line took are given back.
func TestReaderIdle(t *testing.T) {
	in, out := io.Pipe()
	r := NewReader(in, 1<<20)
	go func() {
		_, _ = fmt.Fprintf(out, ":%s\nid: %s\ndata: %s\n\n", strings.Repeat("c", maxText), strings.Repeat("i", maxText/2), strings.Repeat("d", 500_000))
	}()
	e, err := r.Next()
	if err != nil || len(e.Data.B) != 500_000 {
		t.Fatalf("Next = %d bytes, %v", len(e.Data.B), err)
	}
	if r.wide != nil || cap(r.text) > idleWindow || r.data != nil {
		t.Errorf("%d bytes of window and %d of text are held", len(*r.wide), cap(r.text))
	}
	_ = in.Close()
}

// What the Reader and another implementation make of a stream is the same: data, types and positions.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		"", "data: 1\n\n", "id: 1\r\ndata: a\r\ndata: b\r\r\nevent: x\ndata\n\n", "\xef\xbb\xbfdata: x\n\n", ": c\n\n\nretry: 5\n\ndata:x\n\n",
		"id: a\x00\ndata: 1\n\nid\ndata: 2\n\n", "event: e\n\ndata: 1\n\n", "data: \xff\n\ndat", "data\r\r\rdata:\r\r", "data: " + strings.Repeat("x", 600) + "\n\n",
	} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, stream string, chunk int) {
		stream += "\n\n" // the other one reports what is not finished
		if strings.LastIndex(stream, "\ufeff") > 0 {
			return // the other one skips a mark behind empty lines too
		}
		type event struct{ typ, data, last string }
		var want, got []event
		for e, err := range sse.Read(strings.NewReader(stream), &sse.ReadConfig{MaxEventSize: 16 << 20}) {
			if err != nil {
				return // it has limits of its own
			}
			if e.Data == "" {
				continue // it tells them apart in another way, see TestReader
			}
			if e.Type == "" {
				e.Type = "message"
			}
			want = append(want, event{e.Type, e.Data, e.LastEventID})
		}
		last := ""
		r := NewReader(&chunks{s: stream, n: max(1, min(chunk, 1<<16))}, 16<<20)
		for {
			e, err := r.Next()
			if err != nil {
				if err != io.EOF {
					return // a field that is too long
				}
				break
			}
			if e.HasID {
				last = e.ID
			}
			if e.Data != nil {
				got = append(got, event{e.Type, string(e.Data.B), last})
				e.Data.Free()
			}
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%q read as\n%q, want\n%q", stream, got, want)
		}
	})
}

// chunks is a reader of n bytes at a time.
type chunks struct {
	s string
	n int
}

func (c *chunks) Read(b []byte) (int, error) {
	if c.s == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), c.n)], c.s)
	c.s = c.s[n:]
	return n, nil
}

// BenchmarkReader reads events of a size, beside the library whose reader is for small ones.
func BenchmarkReader(b *testing.B) {
	for _, size := range []int{100, 1 << 20} {
		event := []byte("event: message\ndata: " + strings.Repeat("x", size) + "\n\n")
		b.Run(fmt.Sprintf("%d/ours", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			r := NewReader(&endless{event: event}, 2<<20)
			for b.Loop() {
				e, err := r.Next()
				if err != nil || len(e.Data.B) != size {
					b.Fatal(err)
				}
				e.Data.Free()
			}
		})
		b.Run(fmt.Sprintf("%d/go-sse", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			left := b.N
			for e, err := range sse.Read(&endless{event: event}, &sse.ReadConfig{MaxEventSize: 2 << 20}) {
				if err != nil || len(e.Data) != size {
					b.Fatal(err)
				}
				if left--; left <= 0 {
					break
				}
			}
		})
	}
}

// endless is a stream of one event over and over.
type endless struct {
	event []byte
	r     bytes.Reader
}

func (e *endless) Read(b []byte) (int, error) {
	if e.r.Len() == 0 {
		e.r.Reset(e.event)
	}
	return e.r.Read(b)
}

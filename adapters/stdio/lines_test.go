package stdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
)

// pieces reads text in pieces whose sizes follow cuts, again and again.
type pieces struct {
	text, cuts []byte
	n          int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	size := len(p.text)
	if len(p.cuts) > 0 {
		size = 1 + int(p.cuts[p.n%len(p.cuts)])
		p.n++
	}
	n := copy(b, p.text[:min(size, len(p.text))])
	p.text = p.text[n:]
	return n, nil
}

// line is what a lineReader made of one.
type line struct {
	text string
	long bool
}

func readLines(t testing.TB, r io.Reader, limit int) []line {
	t.Helper()
	l := newLineReader(r, limit, func() io.Writer { return new(bytes.Buffer) })
	var all []line
	for {
		buf, over, err := l.next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text := string(buf.B)
		rest, long := over.(*bytes.Buffer)
		if long {
			if text != "" {
				t.Errorf("%d bytes of a line above the limit were kept", len(text))
			}
			text = rest.String()
		}
		buf.Free()
		all = append(all, line{text, long})
	}
}

// receive has c take what r says, as if it were its child's output.
func receive(c *child, r io.Reader, limit int) {
	p := c.output(r, limit)
	for {
		line, over, err := p.lines.next()
		if err != nil {
			return
		}
		p.take(line, over)
	}
}

// FuzzLineReader compares the reader with what bytes.Split makes of the whole.
func FuzzLineReader(f *testing.F) {
	f.Add([]byte("a\n\nb"), []byte{0}, uint16(10))
	f.Add([]byte("\n"), []byte{}, uint16(0))
	f.Add(bytes.Repeat([]byte("0123456789"), 300), []byte{200, 3}, uint16(2999))
	f.Add(append(bytes.Repeat([]byte("x"), 3000), "\nshort\n"...), []byte{255}, uint16(3000))
	f.Add(append(bytes.Repeat([]byte("x"), 3001), "\r\nshort"...), []byte{7}, uint16(3000))
	f.Fuzz(func(t *testing.T, text, cuts []byte, limit uint16) {
		var want []line
		for _, one := range bytes.SplitAfter(text, []byte("\n")) {
			if len(one) > 0 {
				one = bytes.TrimSuffix(one, []byte("\n"))
				want = append(want, line{string(one), len(one) > int(limit)})
			}
		}
		if got := readLines(t, &pieces{text: text, cuts: cuts}, int(limit)); !slices.Equal(got, want) {
			t.Errorf("got %d lines, want %d: %v, want %v", len(got), len(want), got, want)
		}
	})
}

// lines of all sizes around those of the buffers.
func TestLinesOfAllSizes(t *testing.T) {
	const limit = 4 * readBuffer
	var text []byte
	var want []line
	for _, n := range []int{0, 1, 1 << 10, readBuffer - 1, readBuffer, readBuffer + 1, limit - 1, limit, limit + 1, 3 * limit, 0, 5} {
		one := strings.Repeat("x", n)
		text = append(append(text, one...), '\n')
		want = append(want, line{one, n > limit})
	}
	for _, c := range []struct {
		name string
		r    io.Reader
	}{
		{"whole", bytes.NewReader(text)},
		{"halves", iotest.HalfReader(bytes.NewReader(text))},
		{"error with data", iotest.DataErrReader(bytes.NewReader(text))},
		{"pieces", &pieces{text: text, cuts: []byte{255, 0, 30, 2}}},
		{"no last line break", bytes.NewReader(text[:len(text)-1])},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := readLines(t, c.r, limit); !slices.Equal(got, want) {
				t.Errorf("%d lines are not those that were written", len(got))
			}
		})
	}
}

func TestLinesEndWithAnError(t *testing.T) {
	for _, c := range []struct {
		name string
		r    io.Reader
		want error
	}{
		{"broken", io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(io.ErrClosedPipe)), io.ErrClosedPipe},
		{"nothing to read", io.MultiReader(strings.NewReader("a\nb"), nothing{}), io.ErrNoProgress},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLineReader(c.r, 10, func() io.Writer { return io.Discard })
			if buf, _, err := l.next(); err != nil || string(buf.B) != "a" {
				t.Errorf("next = %q, %v", buf.B, err)
			}
			if _, _, err := l.next(); !errors.Is(err, c.want) {
				t.Errorf("next: %v, want %v", err, c.want)
			}
		})
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

// hole is a Sender that keeps the number of messages only.
type hole struct{ n int }

func (h *hole) Send(_ context.Context, o conn.Outgoing) error {
	line := o.Line
	h.n++
	line.Free()
	return nil
}

// offline is a connection without a child: output is given to receive.
func offline(rest bridge.Client) (*child, *hole) {
	c, h := &child{a: New("fake", Config{}, conn.Options{Log: slog.New(slog.DiscardHandler)}), rest: rest}, &hole{}
	c.Conn = conn.New("fake", h, rest, conn.Timeouts{})
	return c, h
}

// output writes what a child might, as plan says, and returns the messages in
// it.
func output(plan []byte, limit int) (text []byte, want []string) {
	if len(plan) > 0 && plan[0]&1 != 0 {
		text = append(text, "\xef\xbb\xbf"...)
	}
	for i, c := range plan {
		end := "\n"
		if c&8 != 0 {
			end = "\r\n"
		}
		message := fmt.Sprintf(`{"jsonrpc":"2.0","method":"n%d","params":{"c":%d,"é\n😀":"%s"}}`, i, c, strings.Repeat("ü€😀", int(c)*4))
		switch c % 8 {
		case 0:
			text = append(text, end...)
		case 1:
			text = append(text, "Listening… ü€😀 {\"jsonrpc\":\"2.0\""+end...)
		case 2:
			text = append(text, `{"jsonrpc":"2.0","method":"big","params":{"x":"`+strings.Repeat("x", limit)+`"}}`+end...)
		case 3: // a batch
			text = append(text, "["+message+",\t"+message+"]"+end...)
			want = append(want, message, message)
		case 4:
			text = append(text, "  "+message+" \t"+end...)
			want = append(want, message)
		case 5:
			text = append(text, bytes.Repeat([]byte{c, 0xff, 0x80}, int(c))...)
			text = append(text, "?"+end...)
		default:
			text = append(text, message+end...)
			want = append(want, message)
		}
	}
	if len(plan) > 0 && plan[len(plan)-1]&16 != 0 {
		text = bytes.TrimSuffix(text, []byte("\n")) // the last line has no end
	}
	return text, want
}

// FuzzLines puts messages among noise, blank lines and lines that are too
// long, cut anywhere, also within a character. Exactly the messages must come
// out.
func FuzzLines(f *testing.F) {
	f.Add([]byte{6}, []byte{})
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 31}, []byte{0})
	f.Add([]byte{255, 254, 253, 252, 251, 250, 249, 248}, []byte{1, 2, 3, 250})
	f.Add([]byte{5, 13, 3, 2, 2, 7, 23}, []byte{255})
	f.Fuzz(func(t *testing.T, plan, cuts []byte) {
		const limit = 32 << 10 // above the largest batch
		plan = plan[:min(len(plan), 64)]
		text, want := output(plan, limit)
		rest := &adaptertest.Client{}
		c, _ := offline(rest)
		receive(c, &pieces{text: text, cuts: cuts}, limit)
		if got := rest.Said(); !slices.Equal(got, want) {
			t.Errorf("messages = %.1000q\nwant       %.1000q", got, want)
		}
	})
}

// FuzzMessage gives the connection one line of whatever kind while a call is
// in flight. The call ends at most once, and the connection works afterwards.
func FuzzMessage(f *testing.F) {
	for _, line := range []string{
		``, `x`, `[]`, `[[]]`, `{}`, `null`, `[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":1,"result":{}}]`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, `{"jsonrpc":"2.0","id":1}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, `{"jsonrpc":"2.0","id":"1","method":"roots/list"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}`, `{"jsonrpc":"2.0","method":"notifications/progress"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `{"jsonrpc":"2.0","id":5,"method":"notifications/cancelled"}`,
		"\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":1,"error":{}}`, `{"\u006asonrpc":"2.0","m\u0065thod":"","id":1}`,
	} {
		f.Add([]byte(line), false)
		f.Add([]byte(line), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, long bool) {
		rest, back := &adaptertest.Client{}, &adaptertest.Client{}
		c, h := offline(rest)
		ctx, cancel := context.WithCancel(t.Context())
		sent := make(chan struct{})
		c.Conn = conn.New("fake", senderFunc(func(_ context.Context, line *jsonrpc.Buffer) error {
			if h.n++; h.n == 1 {
				close(sent)
			}
			line.Free()
			return nil
		}), rest, conn.Timeouts{})
		call := adaptertest.Go(ctx, t, c, back, `{"jsonrpc":"2.0","id":"mine","method":"m","params":{"_meta":{"progressToken":"t"}}}`)
		<-sent
		limit := 1 << 20
		if long {
			limit = len(text) / 2
		}
		receive(c, bytes.NewReader(text), limit)
		receive(c, strings.NewReader(`{"jsonrpc":"2.0","method":"last"}`+"\n"), 1<<20)
		if said := rest.Said(); len(said) == 0 || said[len(said)-1] != `{"jsonrpc":"2.0","method":"last"}` {
			t.Errorf("after %q the connection does not work: %q", text, said)
		}
		cancel()
		<-call
	})
}

type senderFunc func(context.Context, *jsonrpc.Buffer) error

func (s senderFunc) Send(ctx context.Context, o conn.Outgoing) error { return s(ctx, o.Line) }

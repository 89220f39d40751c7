package httpio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"testing"
	"testing/iotest"

	"github.com/mcp-bridge/bridge/bridge/gateway"
)

// Bodies of all sizes arrive as they were sent, with their length announced and without, in pieces of any size; those
// above the limit do not. What was reserved is given back.
func TestRead(t *testing.T) {
	const limit = 5 << 20
	g := gateway.New(gateway.Options{MaxBytes: 16 << 20})
	defer g.Close(context.Background())
	for _, size := range []int{0, 1, first - 1, first, first + 1, 2*first - 1, 2 * first, 2*first + 1, 9*first + 5, limit, limit + envelopeRoom, limit + envelopeRoom + 1, 2 * limit} {
		sent := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
		for _, announced := range []bool{true, false} {
			for name, pieces := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "eof with data": iotest.DataErrReader} {
				r := httptest.NewRequest("POST", "/", pieces(bytes.NewReader(sent)))
				if r.ContentLength = -1; announced {
					r.ContentLength = int64(size)
				}
				body, fault := ReadBody(g, httptest.NewRecorder(), r, limit)
				if size > limit+envelopeRoom {
					if fault == nil || fault.Status != 413 {
						t.Errorf("%d bytes, announced %t, %s: %v, want 413", size, announced, name, fault)
					}
					continue
				}
				if fault != nil || !bytes.Equal(body.Bytes(), sent) {
					t.Errorf("%d bytes, announced %t, %s: %v", size, announced, name, fault)
					continue
				}
				body.Free()
			}
		}
	}
	if !g.Room("").Reserve(16 << 20) {
		t.Error("bytes are reserved still")
	}
}

func TestReadFaults(t *testing.T) {
	g := gateway.New(gateway.Options{MaxBytes: 1 << 20})
	defer g.Close(context.Background())
	tests := []struct {
		name      string
		announced int64
		body      io.Reader
		status    int
	}{
		{"too short", 100, bytes.NewReader(make([]byte, 50)), 400},
		{"broken", 100, iotest.ErrReader(errors.New("broken")), 400},
		{"broken in chunks", -1, iotest.ErrReader(errors.New("broken")), 400},
		{"announced far too large", 1 << 62, bytes.NewReader(nil), 413},
		{"too much in flight", 4 << 20, bytes.NewReader(make([]byte, 4<<20)), 503},
		{"too much in flight in chunks", -1, bytes.NewReader(make([]byte, 4<<20)), 503},
	}
	for _, test := range tests {
		r := httptest.NewRequest("POST", "/", test.body)
		r.ContentLength = test.announced
		if _, fault := ReadBody(g, httptest.NewRecorder(), r, 8<<20); fault == nil || fault.Status != test.status {
			t.Errorf("%s: %v, want %d", test.name, fault, test.status)
		}
	}
	if !g.Room("").Reserve(1 << 20) {
		t.Error("bytes are reserved still")
	}
}

// A body with several users is given back by the last of them.
func TestKeep(t *testing.T) {
	g := gateway.New(gateway.Options{MaxBytes: 1 << 20})
	defer g.Close(context.Background())
	sent := bytes.Repeat([]byte("x"), 600<<10)
	body, fault := ReadBody(g, httptest.NewRecorder(), httptest.NewRequest("POST", "/", bytes.NewReader(sent)), 1<<20)
	if fault != nil {
		t.Fatal(fault)
	}
	free := body.Keep()
	body.Free()
	if g.Room("").Reserve(600<<10) || !bytes.Equal(body.Bytes(), sent) {
		t.Error("a body was given back that is in use")
	}
	free()
	if !g.Room("").Reserve(1 << 20) {
		t.Error("bytes are reserved still")
	}
}

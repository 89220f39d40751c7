package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// These are the kinds of frames. An owner answers a request of a stateless client with frames. A frame is a line with
// a letter and the length of a text, and then the text: a message or an error.
const (
	frameNotification = 'n'
	frameAnswer       = 'a'
	frameError        = 'e'
)

// frames reads frames.
type frames struct {
	in   *bufio.Reader
	most int // bytes of one frame
}

func (f *frames) next() (kind byte, text []byte, err error) {
	head, err := f.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	n, bad := strconv.Atoi(string(head[min(1, len(head)):max(len(head)-1, 1)]))
	if bad != nil || n < 0 || n > f.most {
		return 0, nil, errors.New("the other instance sent an invalid or too large frame")
	}
	kind = head[0]
	text = make([]byte, n)
	_, err = io.ReadFull(f.in, text)
	return kind, text, err
}

// maxWaiting bounds the bytes that wait for a front that reads slowly.
const maxWaiting = 4 << 20

// frameWriter writes frames. It is the Client of a call. A goroutine writes notifications, since Notify must not
// block.
type frameWriter struct {
	w      http.ResponseWriter
	cancel context.CancelCauseFunc // cancels the call
	wake   chan struct{}
	done   chan struct{} // closed when the queue is written and closed

	mu    sync.Mutex // guards the rest
	queue []byte
	over  bool
}

var _ bridge.Client = (*frameWriter)(nil)

func newFrameWriter(w http.ResponseWriter) *frameWriter {
	return &frameWriter{w: w, wake: make(chan struct{}, 1)}
}

func appendFrame(dst []byte, kind byte, text []byte) []byte {
	dst = append(dst, kind)
	dst = strconv.AppendInt(dst, int64(len(text)), 10)
	return append(append(dst, '\n'), text...)
}

// Notify implements bridge.Client. When more than maxWaiting bytes wait, Notify drops a progress or log message, and
// cancels the call for any other notification, which must not be lost.
func (f *frameWriter) Notify(m *jsonrpc.Message) {
	text := m.Append(nil, nil, m.Token())
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.over:
		return
	case len(f.queue)+len(text) > maxWaiting && (m.Method == "notifications/progress" || m.Method == "notifications/message"):
		return
	case len(f.queue)+len(text) > maxWaiting:
		f.cancel(bridge.ErrCancelled)
		return
	}
	f.queue = appendFrame(f.queue, frameNotification, text)
	if f.done == nil {
		f.done = make(chan struct{})
		go f.write()
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// write writes the queue until close.
func (f *frameWriter) write() {
	defer close(f.done)
	rc := http.NewResponseController(f.w)
	for {
		f.mu.Lock()
		text, over := f.queue, f.over
		f.queue = nil
		f.mu.Unlock()
		if len(text) > 0 {
			if write(rc, f.w, text) != nil || rc.Flush() != nil {
				f.cancel(bridge.ErrCancelled)
				return
			}
			continue
		}
		if over {
			return
		}
		<-f.wake
	}
}

// close waits until the queue is written. Notify adds nothing after that.
func (f *frameWriter) close() {
	f.mu.Lock()
	f.over = true
	done := f.done
	f.mu.Unlock()
	if done != nil {
		select {
		case f.wake <- struct{}{}:
		default:
		}
		<-done
	}
}

// answer writes the answer to the request of that id as the last frame.
func (f *frameWriter) answer(m *jsonrpc.Message, id []byte) {
	f.close()
	f.writeLast(frameAnswer, m.Append(nil, id, nil))
}

// fail writes an error as the last frame.
func (f *frameWriter) fail(err error) {
	f.close()
	f.writeLast(frameError, encodeError(err))
}

func (f *frameWriter) writeLast(kind byte, text []byte) {
	rc := http.NewResponseController(f.w)
	httpio.Deadline(rc, len(text))
	_, _ = f.w.Write(appendFrame(nil, kind, text)) // the front may be gone
	_ = rc.SetWriteDeadline(time.Time{})
}

// Ask refuses: a stateless client gets no questions.
func (f *frameWriter) Ask(_ *jsonrpc.Message, reply func(*jsonrpc.Message)) func(string) {
	reply(jsonrpc.NewError(nil, jsonrpc.CodeMethodNotFound, "the client has no session: it cannot be asked", nil))
	return nil
}

// Gone does nothing: the call itself fails.
func (f *frameWriter) Gone(error) {}

// kinds lists the names of the kinds of errors. The order matters: an error that is of several kinds gets the name of
// the first kind.
var kinds = []struct {
	name string
	kind error
}{
	{"no_worker", bridge.ErrNoWorker}, {"invalid", bridge.ErrInvalid}, {"open", bridge.ErrOpen}, {"sign-in", bridge.ErrSignIn}, {"credentials", bridge.ErrCredentials}, {"rejected", bridge.ErrRejected},
	{"no_handshake", bridge.ErrNoHandshake}, {"timeout", bridge.ErrTimeout}, {"too_large", bridge.ErrTooLarge}, {"lost", bridge.ErrLost},
	{"revoked", bridge.ErrRevoked}, {"denied", bridge.ErrDenied}, {"limited", bridge.ErrLimited}, {"replaced", bridge.ErrReplaced},
	{"unavailable", bridge.ErrUnavailable}, {"unsent", bridge.ErrUnsent}, {"overloaded", bridge.ErrOverloaded}, {"unknown_server", bridge.ErrUnknownServer},
}

type failure struct {
	Kinds  []string `json:"kinds"`
	Public string   `json:"public"`
	After  int64    `json:"after,omitempty"` // ms
	Text   string   `json:"text"`            // for the log
	Whose  string   `json:"server,omitempty"`
}

func encodeError(err error) []byte {
	f := failure{Text: bridge.Brief(err), After: bridge.RetryAfter(err).Milliseconds()}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			f.Kinds = append(f.Kinds, k.name)
		}
	}
	if e, ok := errors.AsType[*bridge.Error](err); ok {
		f.Public, f.Whose = e.Public, e.Server
	}
	text, _ := json.Marshal(f) // every member has a JSON form
	return text
}

func decodeError(server string, text []byte) error {
	var f failure
	if err := json.Unmarshal(text, &f); err != nil {
		f = failure{Kinds: []string{"lost"}, Public: "the outcome of the call is unknown"}
	}
	e := &bridge.Error{
		Server: f.Whose,
		Kind:   bridge.ErrUnavailable,
		Public: f.Public,
		After:  time.Duration(f.After) * time.Millisecond,
	}
	if f.Public == "" {
		e.Server, e.Public = server, "it is not available at the instance of the bridge that owns its connection"
	}
	why := []error{fmt.Errorf("at another instance: %s", f.Text)}
	for i, name := range f.Kinds {
		for _, k := range kinds {
			switch {
			case k.name != name:
			case i == 0:
				e.Kind = k.kind
			default:
				why = append(why, k.kind)
			}
		}
	}
	e.Err = errors.Join(why...)
	return e
}

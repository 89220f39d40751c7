package inspect

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tidwall/gjson"
)

// wire wraps the SDK's connection to the server. It keeps raw answers, because the SDK's types drop unknown fields and
// convert numbers to floats. It handles notifications in order, before an answer that follows them.
type wire struct {
	mcp.Transport
	mcp.Connection // set by Connect

	status *status // gets the server's notifications, in order
	asker  *asker  // answers the server's questions (elicitation/create)

	ctx  context.Context // context of questions
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu        sync.Mutex // guards the rest
	call      jsonrpc.ID // id of the client's last request; requests follow one another
	answer    *jsonrpc.Response
	questions map[jsonrpc.ID]context.CancelFunc
	taken     chan struct{} // open from the last request until the request's cancellation is sent
}

func newWire(t mcp.Transport, s *status, a *asker) *wire {
	w := &wire{
		Transport: t,
		status:    s,
		asker:     a,
		questions: map[jsonrpc.ID]context.CancelFunc{},
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.begin()
	return w
}

// begin forgets the last request before the next request, which may fail before Write.
func (w *wire) begin() {
	taken := make(chan struct{})
	close(taken)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.call, w.answer, w.taken = jsonrpc.ID{}, nil, taken
}

// Connect implements mcp.Transport.
func (w *wire) Connect(ctx context.Context) (mcp.Connection, error) {
	var err error
	w.Connection, err = w.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Read implements mcp.Connection. It does not return messages that the wire handles itself.
func (w *wire) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := w.Connection.Read(ctx)
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *jsonrpc.Response:
			w.mu.Lock()
			if m.ID.IsValid() && m.ID == w.call {
				w.answer = m
			}
			w.mu.Unlock()
		case *jsonrpc.Request:
			switch {
			case m.Method == "elicitation/create" && m.IsCall():
				w.question(m)
				continue
			case m.Method == "notifications/cancelled" && w.withdrawn(m.Params):
				continue
			case !m.IsCall():
				w.status.hear(m.Method, m.Params)
			}
		}
		return m, nil
	}
}

// question answers a question in a goroutine.
func (w *wire) question(m *jsonrpc.Request) {
	ctx, cancel := context.WithCancel(w.ctx)
	w.mu.Lock()
	w.questions[m.ID] = cancel
	w.mu.Unlock()
	w.wg.Go(func() {
		defer func() {
			cancel()
			w.mu.Lock()
			delete(w.questions, m.ID)
			w.mu.Unlock()
		}()
		if result := w.asker.answer(ctx, m.Params); result != nil {
			_ = w.Connection.Write(ctx, &jsonrpc.Response{ID: m.ID, Result: result}) // the call fails if the connection is dead
		}
	})
}

// withdrawn ends the open question that the server cancels, and reports whether there was one.
func (w *wire) withdrawn(params json.RawMessage) bool {
	id, err := jsonrpc.MakeID(gjson.GetBytes(params, "requestId").Value())
	if err != nil {
		return false
	}
	w.mu.Lock()
	cancel := w.questions[id]
	w.mu.Unlock()
	if cancel == nil {
		return false
	}
	cancel()
	return true
}

// Write implements mcp.Connection.
func (w *wire) Write(ctx context.Context, m jsonrpc.Message) error {
	q, _ := m.(*jsonrpc.Request)
	if q != nil && q.IsCall() {
		w.mu.Lock()
		w.call, w.answer, w.taken = q.ID, nil, make(chan struct{})
		w.mu.Unlock()
	}
	err := w.Connection.Write(ctx, m)
	if q != nil && q.Method == "notifications/cancelled" {
		w.mu.Lock()
		select {
		case <-w.taken:
		default:
			close(w.taken)
		}
		w.mu.Unlock()
	}
	return err
}

// Close implements mcp.Connection.
func (w *wire) Close() error {
	w.stop()
	return w.Connection.Close()
}

// last returns the answer to the last request, or nil if there is no answer.
func (w *wire) last() *jsonrpc.Response {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answer
}

// takenBack returns a channel that closes when the cancellation of the last request is sent.
func (w *wire) takenBack() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken
}

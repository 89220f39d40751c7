package peer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

var noHTTP2 = map[string]func(*http.Server, *tls.Conn, http.Handler){}

// outcome is the result of forwarding a request.
type outcome int

const (
	answered outcome = iota
	unsent           // nothing of the request was sent, or the request may be sent twice
	refused          // the other instance does not own the session
	unsure           // the other instance cannot serve any session now
)

// maxBuffered is the size up to which a response, or an event, is read before any of it is forwarded. If the other
// instance ends meanwhile, the client still gets an answer.
const maxBuffered = 64 << 10

// forward sends a request to the instance m, and copies the response.
func (p *Peers) forward(m cluster.Member, w http.ResponseWriter, r *http.Request, path string, query url.Values, body []byte) outcome {
	ctx := r.Context()
	if r.Method == http.MethodGet { // a stream, which ends when this instance leaves
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(p.leaving, cancel)()
	}
	if mode := r.URL.Query().Get("tools"); mode != "" { // see gateway.ToolsModeOf
		query = maps.Clone(query)
		if query == nil {
			query = url.Values{}
		}
		query.Set("tools", mode)
	}
	var last attempt
	u := url.URL{
		Scheme:   "https",
		Host:     m.Address,
		Path:     path,
		RawQuery: query.Encode(),
	}
	out := (&http.Request{
		Method:     r.Method,
		URL:        &u,
		Host:       m.Address,
		Header:     p.forwardedHeaders(r),
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
	}).WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: last.got}))
	if r.Method == http.MethodPost {
		out.ContentLength = int64(len(body))
		// An idle connection may have been closed. With GetBody, net/http then sends the request over another
		// connection if nothing of it was sent; it never sends a POST twice. With a bytes.Reader, net/http sends a
		// small body together with the headers.
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		out.Body, _ = out.GetBody()
	}
	res, err := p.link(m).http.RoundTrip(out)
	switch {
	case err != nil && r.Context().Err() != nil:
		return answered // the client is gone
	case err != nil && (r.Method != http.MethodPost || !last.wrote()): // a GET or DELETE may be sent twice
		return unsent
	case err != nil:
		p.lost(w, http.StatusOK, body)
		return answered
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusMisdirectedRequest {
		_, _ = io.CopyN(io.Discard, res.Body, maxBuffered)
		if res.Header.Get("Retry-After") != "" {
			return unsure
		}
		return refused
	}
	p.node.Counts().Forwarded.Add(1)
	h := w.Header()
	for _, name := range []string{"Content-Type", "Retry-After", "Cache-Control", "X-Accel-Buffering", "Allow", "Mcp-Session-Id"} {
		if values := res.Header[name]; len(values) > 0 {
			h[name] = values
		}
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		p.events(w, r, res, body)
		return answered
	}
	size := maxBuffered + 1
	if n := res.ContentLength; n >= 0 && n <= maxBuffered {
		size = int(n)
	}
	buf := jsonrpc.NewBuffer(size)
	defer buf.Free()
	n := 0
	for n < size && err == nil {
		var more int
		more, err = res.Body.Read(buf.B[n:size])
		n += more
	}
	if err != nil && err != io.EOF {
		p.lost(w, http.StatusOK, body)
		return answered
	}
	if length := res.Header["Content-Length"]; len(length) > 0 {
		h["Content-Length"] = length
	}
	w.WriteHeader(res.StatusCode)
	rc := http.NewResponseController(w)
	for {
		if failed := write(rc, w, buf.B[:n]); failed != nil || err == io.EOF || size <= maxBuffered {
			return answered
		}
		if err != nil {
			sever(rc, w)
			return answered
		}
		n, err = res.Body.Read(buf.B[:size])
	}
}

// attempt is the last connection that was tried for a request.
type attempt struct {
	conn   *counted // nil if there was no connection
	before int64    // bytes that were written to conn before the request
}

func (a *attempt) got(i httptrace.GotConnInfo) {
	a.conn = i.Conn.(*counted)
	a.before = a.conn.written.Load()
}

// wrote reports whether any byte of the request was sent.
func (a *attempt) wrote() bool { return a.conn != nil && a.conn.written.Load() != a.before }

// write writes a part of a response, with a deadline by its size.
func write(rc *http.ResponseController, w io.Writer, b []byte) error {
	httpio.Deadline(rc, len(b))
	_, err := w.Write(b)
	_ = rc.SetWriteDeadline(time.Time{})
	return err
}

// sever breaks the client's connection. A plain end would look like a complete response.
func sever(rc *http.ResponseController, w io.Writer) {
	_ = rc.SetWriteDeadline(time.Unix(1, 0))
	_, _ = w.Write([]byte("\n"))
	_ = rc.Flush()
}

// requests returns the ids, as raw JSON, of the requests in a body. batch reports whether the body is a batch.
func requests(body []byte) (ids [][]byte, batch bool) {
	elements := [][]byte{body}
	if batch = jsonrpc.IsBatch(body); batch {
		elements, _ = jsonrpc.Split(body) // a faulty element was refused before
	}
	for _, e := range elements {
		if m, err := jsonrpc.ParseUTF8(e); err == nil && m.IsRequest() {
			ids = append(ids, bytes.Clone(m.ID))
		}
	}
	return ids, batch
}

func lostAnswer(id []byte) []byte { return gateway.OwnerLost(id).Append(nil, id, nil) }

// lost answers the requests of a body with errors: the other instance ended before it answered.
func (p *Peers) lost(w http.ResponseWriter, status int, body []byte) {
	ids, batch := requests(body)
	w.Header().Set("Content-Type", "application/json")
	if len(ids) == 0 {
		w.WriteHeader(http.StatusBadGateway) // the body has no request: its notification or answer may have arrived
		_, _ = w.Write(lostAnswer(nil))
		return
	}
	var all [][]byte
	for _, id := range ids {
		all = append(all, lostAnswer(id))
	}
	text := all[0]
	if batch {
		text = append(append([]byte{'['}, bytes.Join(all, []byte{','})...), ']')
	}
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// events copies an event stream. If the stream breaks between two events, events answers the open requests of the
// body with errors. If the stream breaks within an event, events cuts the connection.
func (p *Peers) events(w http.ResponseWriter, r *http.Request, res *http.Response, body []byte) {
	var open [][]byte
	if r.Method == http.MethodPost {
		open, _ = requests(body)
	}
	rc := http.NewResponseController(w)
	w.WriteHeader(res.StatusCode)
	_ = rc.Flush()
	in := &eventReader{in: bufio.NewReaderSize(res.Body, 4<<10), fresh: true}
	midst := false
	// ended reports whether this instance ends the stream. The other instance may see the end of the stream first.
	ended := func() bool { return r.Method == http.MethodGet && p.leaving.Err() != nil }
	for {
		part, ends, err := in.next()
		switch {
		case err != nil && r.Context().Err() != nil, err == io.EOF && !ended():
			return
		case err != nil && midst:
			sever(rc, w)
			return
		case err != nil:
			p.brokenOff(rc, w, r, open)
			return
		}
		if !midst {
			settle(open, part)
		}
		midst = !ends
		if write(rc, w, part) != nil {
			return
		}
		if in.in.Buffered() == 0 && rc.Flush() != nil {
			return
		}
	}
}

// brokenOff ends a stream that broke between two events: it answers the requests with the ids in open with errors.
func (p *Peers) brokenOff(rc *http.ResponseController, w io.Writer, r *http.Request, open [][]byte) {
	for _, id := range open {
		if id != nil && write(rc, w, append(append([]byte("event: message\ndata: "), lostAnswer(id)...), "\n\n"...)) != nil {
			return
		}
	}
	if r.Method == http.MethodGet && r.Header.Get("Mcp-Protocol-Version") >= era.Rev20251125 {
		_ = write(rc, w, []byte("retry: 1000\n\n")) // the client reconnects after 1 s; older revisions do not define this
	}
	_ = rc.Flush()
}

// eventReader reads an event stream event by event, and large ones in parts.
type eventReader struct {
	in    *bufio.Reader
	buf   []byte
	fresh bool // the next byte begins a line
}

// next returns the next event, or a part of a large event. ends reports whether the event ends with that part. If the
// stream breaks, next drops the incomplete rest and returns the error.
func (e *eventReader) next() (part []byte, ends bool, err error) {
	e.buf = e.buf[:0]
	for len(e.buf) < maxBuffered {
		line, err := e.in.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull {
			return nil, false, err
		}
		e.buf = append(e.buf, line...)
		ends, e.fresh = e.fresh && len(line) == 1, err == nil
		if ends {
			break
		}
	}
	return e.buf, ends, nil
}

// settled reports whether each request has its answer.
func settled(open [][]byte) bool {
	return !slices.ContainsFunc(open, func(id []byte) bool { return id != nil })
}

// settle sets the request in open that an event answers to nil. settle reads only the beginning, since the id comes
// first in what an instance writes.
func settle(open [][]byte, event []byte) {
	if settled(open) {
		return
	}
	_, data, found := bytes.Cut(event, []byte("data: "))
	if !found || !bytes.HasPrefix(data, []byte(`{"jsonrpc":"2.0","id":`)) {
		return
	}
	id := []byte(gjson.GetBytes(data[:min(len(data), maxBuffered)], "id").Raw)
	rest := data[len(`{"jsonrpc":"2.0","id":`)+len(id):]
	if !bytes.HasPrefix(rest, []byte(`,"result"`)) && !bytes.HasPrefix(rest, []byte(`,"error"`)) {
		return // a question of the server
	}
	for i, o := range open {
		if bytes.Equal(o, id) {
			open[i] = nil
			return
		}
	}
}

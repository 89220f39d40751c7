package bridge

import "net/http"

// Trace is what tells a peer of the trace that a request belongs to, as W3C
// Trace Context writes it: in params._meta (protocol.md B17) and in headers of
// HTTP. The zero Trace is that of a request that belongs to none. baggage is not
// the bridge's: in _meta it stays as it is.
type Trace struct {
	Parent string // as the header Traceparent has it
	State  string // as the header Tracestate has it
}

// Put sets the headers of a request over HTTP that say the same.
func (t Trace) Put(h http.Header) {
	if t.Parent == "" {
		return
	}
	h["Traceparent"] = []string{t.Parent}
	delete(h, "Tracestate") // of another trace
	if t.State != "" {
		h["Tracestate"] = []string{t.State}
	}
}

package bridge

import "net/http"

// Trace is the trace context of a request in the form of W3C Trace Context, as in params._meta (protocol.md B17) and in
// HTTP headers. The zero Trace means that there is none. Baggage is not a part of it, and stays in _meta.
type Trace struct {
	Parent string // the header Traceparent
	State  string // the header Tracestate
}

// Put sets the trace headers of an HTTP request. A zero Trace changes nothing.
func (t Trace) Put(h http.Header) {
	if t.Parent == "" {
		return
	}
	h["Traceparent"] = []string{t.Parent}
	delete(h, "Tracestate") // a former Tracestate belongs to another trace
	if t.State != "" {
		h["Tracestate"] = []string{t.State}
	}
}

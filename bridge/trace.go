package bridge

import "net/http"

// Trace is a request's context in the form of W3C Trace Context, for params._meta (protocol.md B17) and HTTP
// headers. The zero Trace means none. The bridge does not use baggage: it stays in _meta.
type Trace struct {
	Parent string // the header Traceparent
	State  string // the header Tracestate
}

// Put sets the trace headers of an HTTP request.
func (t Trace) Put(h http.Header) {
	if t.Parent == "" {
		return
	}
	h["Traceparent"] = []string{t.Parent}
	delete(h, "Tracestate") // it belongs to another trace
	if t.State != "" {
		h["Tracestate"] = []string{t.State}
	}
}

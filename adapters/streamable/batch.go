package streamable

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/gateway"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// inEach is the end of the text of gateway.NoBatches: where to send a single message.
const inEach = "in each POST"

// batch handles an array of messages, which only sessions of 2025-03-26 and before have (R-044,
// body is freed when the last call has ended, which may be after the POST.
func (d *Downstream) batch(server string, w http.ResponseWriter, r *http.Request, body *httpio.Body, as forms) {
	defer body.Free()
	offered := d.g.OffersModern(server)
	if offered && namesModern(r.Header) {
		refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, gateway.NoBatches(era.FirstModern, inEach))
		return
	}
	elements, err := jsonrpc.Split(body.Bytes())
	if err != nil {
		refuseBody(w, err)
		return
	}
	p := d.find(server, w, r, nil, body.Bytes())
	if p == nil {
		return
	}
	fault := gateway.BatchSize(len(elements))
	if p.Revision() > era.Rev20250326 {
		fault = gateway.NoBatches(p.Revision(), inEach)
	}
	if fault != "" {
		refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, fault)
		return
	}
	all, faults, modern := partition(elements, offered)
	if modern { // C3, R-082
		refuse(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, gateway.NoBatches(era.FirstModern, inEach))
		return
	}
	var calls []*jsonrpc.Message
	for _, m := range all {
		if m.IsRequest() {
			calls = append(calls, m)
		}
	}
	st := newStream(p, postPrefix, len(calls)+len(faults))
	st.as, st.batch = as, true
	for _, m := range faults {
		st.answer(m, nil)
	}
	for _, m := range calls {
		st.answering(m)
	}
	for _, m := range all { // in order, since a cancellation may be about a call before it
		switch {
		case m.IsRequest():
			if free := body.Keep(); !p.call(st, m, gateway.EnvelopeOf(r), free) {
				free()
				st.answer(jsonrpc.NewError(bytes.Clone(m.ID), jsonrpc.CodeInvalidRequest, gone, nil), nil)
			}
		case m.IsNotification():
			e := gateway.EnvelopeOf(r)
			p.Notify(m, &e)
		default:
			_ = p.Answer(m) // a late answer is no fault of the client
		}
	}
	if len(calls)+len(faults) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	st.reply(w, r, false)
}

// partition returns the messages of a batch, and the errors that answer its other elements. If
// offered is set, modern reports whether an element is of the stateless era.
func partition(elements [][]byte, offered bool) (messages, faults []*jsonrpc.Message, modern bool) {
	batch := gateway.Batch{}
	for _, e := range elements {
		m, err := jsonrpc.ParseUTF8(e)
		fault, code := "", jsonrpc.CodeInvalidRequest
		switch {
		case err != nil:
			m, fault = &jsonrpc.Message{}, err.Error()
			if invalid, ok := errors.AsType[*jsonrpc.InvalidError](err); ok {
				m.ID, code = invalid.ID, invalid.Code()
			}
		case offered && gateway.IsStateless(m):
			return nil, nil, true
		default:
			fault = batch.Fault(m)
		}
		if fault != "" {
			faults = append(faults, jsonrpc.NewError(bytes.Clone(m.ID), code, fault, nil))
			continue
		}
		messages = append(messages, m)
	}
	return messages, faults, false
}

package jsonrpc

// NewRequest returns a request of the bridge itself. It parses the request, so that Append can replace a progress token
// in params.
func NewRequest(method string, params []byte) *Message {
	m := &Message{
		ID:     []byte("0"),
		Method: method,
		Params: params,
	}
	return m.Clone()
}

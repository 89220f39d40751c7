package jsonrpc

// NewRequest returns a request of the bridge itself. It is a parsed message, so that a progress token in the
// params can be replaced like any other.
func NewRequest(method string, params []byte) *Message {
	m := &Message{
		ID:     []byte("0"),
		Method: method,
		Params: params,
	}
	return m.Clone()
}

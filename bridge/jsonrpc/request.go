package jsonrpc

// NewRequest makes a request of the bridge's own from params that a client once
// sent. It is a parsed message: a progress token in it is found, and replaced
// like any other.
func NewRequest(method string, params []byte) *Message {
	m := &Message{ID: []byte("0"), Method: method, Params: params}
	return m.Clone()
}

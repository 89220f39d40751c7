package remote

import (
	"bytes"
	"io"
	"net/http"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// Kind returns httpio.JSON or httpio.Events if the response is one of them, otherwise its media type. Some servers send
// JSON without a type, or as text/plain: its first character shows it.
func Kind(res *http.Response) string {
	kind := httpio.Kind(res.Header)
	if res.StatusCode != http.StatusOK || kind != "" && kind != "text/plain" && kind != httpio.Bytes {
		return kind
	}
	head := make([]byte, 512)
	n, err := res.Body.Read(head)
	rest := io.Reader(res.Body)
	if err != nil {
		rest = failing{err}
	}
	res.Body = &reread{io.MultiReader(bytes.NewReader(head[:n]), rest), res.Body}
	if text := jsonrpc.Bare(head[:n]); len(text) > 0 && (text[0] == '{' || text[0] == '[') {
		return httpio.JSON
	}
	return kind
}

// failing is the rest of a body that has ended.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }

package remote

import (
	"bytes"
	"io"
	"net/http"

	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/httpio"
)

// Kind returns the media type of a response. Some servers send JSON without a type, or as text/plain or
// bytes. If the first character of such a body shows JSON, Kind returns httpio.JSON. It may wait for
// the beginning of the body.
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

// failing is the rest of a body of which a read has failed: Read returns the error again.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }

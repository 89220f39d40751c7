package remote

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/internal/httpio"
)

// accepted is the Accept-Encoding of requests: the codings that decoded can read (RFC 9110, section
// 8.4).
var accepted = []string{"gzip"}

// plain is the Accept-Encoding that asks for no compression.
var plain = []string{"identity"}

// CodingError is the error of an answer whose Content-Encoding is unsupported, or does not match
// the body. The server may have acted on the request. A client may see the text.
type CodingError string

// Error names the coding.
func (c CodingError) Error() string { return string(c) }

// unsupported is the error of an answer with a coding that is not in accepted.
func unsupported(coding string) error {
	if !httpguts.ValidHeaderFieldName(coding) || len(coding) > 40 { // a coding is a token, as the name of a header is
		return CodingError("its answer has a Content-Encoding that the bridge did not ask for: it reads only gzip")
	}
	return CodingError(fmt.Sprintf("its answer has the Content-Encoding %s, which the bridge did not ask for: it reads only gzip", coding))
}

// decoded returns a response with its body decompressed. If the coding is unsupported, it returns an
// error for a success, and otherwise a response without a body.
func decoded(res *http.Response) (*http.Response, error) {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(res.Header["Content-Encoding"], ",")))
	switch {
	case httpio.IsPlain(coding), res.Body == nil, res.Body == http.NoBody:
		return res, nil
	case coding == "gzip" || coding == "x-gzip":
		res.Body = &unzipped{body: body{ReadCloser: res.Body}}
	case res.StatusCode/100 == 2 && res.StatusCode != http.StatusAccepted && res.StatusCode != http.StatusNoContent:
		_ = res.Body.Close()
		return nil, unsupported(coding)
	default:
		_ = res.Body.Close()
		res.Body = http.NoBody
	}
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength, res.Uncompressed = -1, true
	return res, nil
}

// unzipped is a body that is decompressed while it is read. It reads nothing before the first Read,
// since a stream may be silent for long, and an answer without content has no gzip.
type unzipped struct {
	body body
	z    *gzip.Reader
	err  error
}

// body is the compressed body of a response.
type body struct {
	io.ReadCloser
	ended bool // the body was read to its end, by its length in HTTP
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// Read implements io.Reader.
func (u *unzipped) Read(p []byte) (n int, err error) {
	if u.z == nil && u.err == nil {
		u.z, u.err = gzip.NewReader(&u.body)
	}
	if u.err == nil {
		n, u.err = u.z.Read(p)
	}
	_, corrupt := errors.AsType[flate.CorruptInputError](u.err)
	switch {
	case corrupt, errors.Is(u.err, gzip.ErrHeader), errors.Is(u.err, gzip.ErrChecksum):
		u.err = CodingError("its answer is not gzip, although it says so")
	case errors.Is(u.err, io.ErrUnexpectedEOF) && u.body.ended: // if not ended, the connection broke
		u.err = CodingError("its answer is gzip that is cut")
	}
	return n, u.err
}

// Close implements io.Closer.
func (u *unzipped) Close() error { return u.body.Close() }

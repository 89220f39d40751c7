// Package sign signs requests: by AWS Signature Version 4, or by a program or a service of the
// operator.
//
// A [Signer] changes only headers. It signs each attempt anew, since signatures contain a time.
package sign

import (
	"context"
	"net/http"
)

// Signer signs requests. Its methods are safe for concurrent use.
type Signer interface {
	// Sign sets headers of a finished request. body is its whole body. Clients may see the text of
	// an error.
	Sign(ctx context.Context, r *http.Request, body []byte) error
	// Close releases the signer's resources.
	Close()
}

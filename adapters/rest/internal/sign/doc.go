// Package sign signs requests to APIs that want that: by AWS Signature Version 4,
// or as a program or a service of the operator says.
//
// A [Signer] changes nothing of a request but its headers, and is asked again for
// each attempt: signatures have a time in them.
package sign

import (
	"context"
	"net/http"
)

// Signer signs requests. It may be used by many goroutines.
type Signer interface {
	// Sign sets headers of a request that is ready to be sent. body is all of its
	// body. What an error says may be told to clients.
	Sign(ctx context.Context, r *http.Request, body []byte) error
	// Close gives back what the signer holds.
	Close()
}

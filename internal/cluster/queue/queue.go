// Package queue is the queue by which instances ask workers for connections. A front adds a
// request. A worker with a free slot takes it and sends a grant. The front accepts one grant.
// Only requests go through the store, never messages of clients.
//
//	front                    queue                    worker
//	  |---- Add -------------->|                         |
//	  |                        |<------- Take -----------|
//	  |<------------ the id of the request, a grant -----|
//	  |---- opens the connection with the grant -------->|
//
// The queue may give a request to two workers, or to one worker twice. There is still only one
// connection: the front accepts only the first grant.
package queue

import (
	"context"
	"time"
)

// Request is the request of an instance for a connection.
type Request struct {
	ID    string `json:"id"`    // random
	Front string `json:"front"` // the instance that needs the connection
}

// Taken is a request that a worker took. Unless the request is done in time, another worker gets it too.
type Taken struct {
	Request
	Server string
	Entry  string // the name of its entry
}

// Queue has a line of requests for each server, in the order of arrival. Its methods may be called
// concurrently. They fail with session.ErrUnavailable while the store is unreachable.
type Queue interface {
	// Add appends a request to the line of a server, and returns the name of the entry. The error is
	// session.ErrFull if the line has most entries.
	Add(ctx context.Context, server string, r Request, most int) (entry string, err error)
	// Take takes the first untaken request of each line. It waits until there is one, at most for wait, and then
	// returns none.
	Take(ctx context.Context, servers []string, wait time.Duration) ([]Taken, error)
	// Overdue takes requests that were taken at least that long ago and are not done. It takes the first
	// requests of each line, no more than most.
	Overdue(ctx context.Context, servers []string, after time.Duration, most int) ([]Taken, error)
	// Return gives a taken request back: it is overdue at once.
	Return(ctx context.Context, t Taken) error
	// Has reports whether a request is in the line of a server, taken or not.
	Has(ctx context.Context, server, entry string) (bool, error)
	// Done removes a request from the line of a server.
	Done(ctx context.Context, server, entry string) error
	// Lengths returns the lengths of the lines, with requests that are taken and not done.
	Lengths(ctx context.Context, servers []string) ([]int, error)
}

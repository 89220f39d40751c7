// Package queue is the queue by which instances ask workers for connections. A front adds a request. A worker with a
// free slot takes the request and sends a grant. The front accepts one grant. Only requests go through the store, never
// messages of clients.
//
//	front                    queue                    worker
//	  |---- Add -------------->|                         |
//	  |                        |<------- Take -----------|
//	  |<------------ the id of the request, a grant -----|
//	  |---- opens the connection with the grant -------->|
//
// The queue may give a request to two workers, or twice to one worker. There is still only one connection, since the
// front accepts only the first grant.
package queue

import (
	"context"
	"time"
)

// Request is the request of an instance for a connection.
type Request struct {
	ID    string `json:"id"`    // random
	Front string `json:"front"` // id of the instance that needs the connection
}

// Taken is a request that a worker took. If the request is not done in time, another worker gets it, too.
type Taken struct {
	Request
	Server string
	Entry  string // name of the entry in the line
}

// Queue has a line of requests for each server, in the order of their arrival. Its methods may be called concurrently.
// While the store is unreachable, their error is session.ErrUnavailable.
type Queue interface {
	// Add appends a request to the line of a server, and returns the name of the new entry. If the line already has
	// most entries, the error is session.ErrFull.
	Add(ctx context.Context, server string, r Request, most int) (entry string, err error)
	// Take takes the first request of each line that no worker has taken. If there is none, Take waits for one, at most
	// for wait.
	Take(ctx context.Context, servers []string, wait time.Duration) ([]Taken, error)
	// Overdue takes requests that a worker took at least the time after ago and that are not done: the first of each
	// line, at most most of each.
	Overdue(ctx context.Context, servers []string, after time.Duration, most int) ([]Taken, error)
	// Return gives a taken request back, so that Overdue takes it at once.
	Return(ctx context.Context, t Taken) error
	// Has reports whether the line of a server has an entry, taken or not.
	Has(ctx context.Context, server, entry string) (bool, error)
	// Done removes an entry from the line of a server.
	Done(ctx context.Context, server, entry string) error
	// Lengths returns the length of each line, including requests that are taken but not done.
	Lengths(ctx context.Context, servers []string) ([]int, error)
}

// Package queue is the queue by which instances have connections opened at others:
// a front offers an opening, a worker with a free place takes the offer, and the front
// hands it out once. Only offers go through the store, and nothing of what clients say.
//
//	front                    queue                    worker
//	  |---- Add -------------->|                         |
//	  |                        |<------- Take -----------|
//	  |<--------------- the id of the offer, a ticket ---|
//	  |---- opens the connection with the ticket ------->|
//
// The queue may give an offer to two workers, or twice. What makes it one connection is
// the front: it hands each offer to the first that asks.
package queue

import (
	"context"
	"time"
)

// Offer says that an instance wants a connection opened.
type Offer struct {
	ID    string `json:"id"`    // random
	Front string `json:"front"` // the instance
}

// Taken is an offer that a worker has read. Others get it, too, unless it is done in time.
type Taken struct {
	Offer
	Server string
	Entry  string // its name in the queue
}

// Queue has a line of offers for each server, in the order in which they came. Its methods
// may be called concurrently. They fail with session.ErrUnavailable while the store is out
// of reach.
type Queue interface {
	// Add puts an offer at the end of the line of a server, and returns its name there.
	// The error is session.ErrFull if the line is as long as that.
	Add(ctx context.Context, server string, o Offer, most int) (entry string, err error)
	// Take returns the first offer of each of the lines that nobody has taken, at least
	// one. It waits for that, and returns none if there was none in all that time.
	Take(ctx context.Context, servers []string, wait time.Duration) ([]Taken, error)
	// Overdue takes offers that another has taken so long ago and not done, the first of
	// each line, and most of each at most.
	Overdue(ctx context.Context, servers []string, after time.Duration, most int) ([]Taken, error)
	// Back gives an offer back that was taken: it is overdue at once.
	Back(ctx context.Context, t Taken) error
	// Has reports whether an offer is in the line of a server, taken or not.
	Has(ctx context.Context, server, entry string) (bool, error)
	// Done removes an offer from the line of a server.
	Done(ctx context.Context, server, entry string) error
	// Lengths returns how long the lines are, with what was taken and is not done.
	Lengths(ctx context.Context, servers []string) ([]int, error)
}

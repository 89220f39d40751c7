package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest"
	"github.com/mcp-bridge/bridge/bridge/session"
)

// webhooks holds the number and the body of the last webhook of each server.
type webhooks interface {
	// Next returns the number of the next webhook of a server.
	Next(ctx context.Context, server string) (int64, error)
	// Put stores the body of a webhook, unless a later one is stored.
	Put(ctx context.Context, server string, n int64, body []byte) error
	// Get returns the last webhook of a server. The error is session.ErrNotFound if there is none.
	Get(ctx context.Context, server string) (n int64, body []byte, err error)
}

// announcements passes a webhook, which reaches one instance, to all instances. Instances that start
// later get it too (S-043).
type announcements struct {
	store   webhooks
	log     *slog.Logger
	hooks   func() map[string]*hook // the webhooks of this instance
	updates chan map[string]int64   // by server, the number in the store at the last heartbeat
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup

	turn    chan struct{}        // a lock, held while a webhook is applied
	applied map[string]announced // the applied webhooks by server; guarded by turn
}

// announced is one applied webhook.
type announced struct {
	by     *hook // the hook to which the webhook was applied: a replaced server has another hook
	number int64
	body   []byte
}

func newAnnouncements(w webhooks, hooks func() map[string]*hook, log *slog.Logger) *announcements {
	a := &announcements{
		store:   w,
		log:     log,
		hooks:   hooks,
		updates: make(chan map[string]int64, 1),
		turn:    make(chan struct{}, 1),
		applied: map[string]announced{},
	}
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.wg.Go(a.follow)
	return a
}

func (a *announcements) close() {
	a.stop()
	a.wg.Wait()
}

// update passes the numbers of the webhooks in the store to follow, in place of numbers that follow has not read yet.
func (a *announcements) update(all map[string]int64) {
	select {
	case <-a.updates: // follow has not read these numbers: drop them
	default:
	}
	select {
	case a.updates <- all:
	default:
	}
}

// enter waits for a.turn.
func (a *announcements) enter(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errNotShared means that this instance has applied a webhook but could not inform the other instances.
var errNotShared = errors.New("the other instances of the bridge could not be informed")

// storeLimit bounds the time for storing or reading a webhook.
const storeLimit = 5 * time.Second

// apply applies a webhook here, and stores the webhook for the other instances.
func (a *announcements) apply(ctx context.Context, server string, h *hook, body []byte) (tools int, err error) {
	if err := a.enter(ctx); err != nil {
		return 0, err
	}
	defer func() { <-a.turn }()
	if tools, err = h.renew(ctx, body); err != nil {
		return 0, err
	}
	short, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	n, err := a.store.Next(short, server)
	if err == nil {
		err = a.store.Put(short, server, n, body)
	}
	if err != nil {
		return 0, errors.Join(errNotShared, err)
	}
	a.applied[server] = announced{h, n, bytes.Clone(body)}
	return tools, nil
}

// follow applies the webhooks of other instances, until close.
func (a *announcements) follow() {
	for {
		select {
		case all := <-a.updates:
			for name, h := range a.hooks() {
				if err := a.sync(name, h, all[name]); err != nil && a.ctx.Err() == nil {
					a.log.Warn("a catalogue that another instance got by a webhook cannot be used here yet", "server", name, "err", err)
				}
			}
		case <-a.ctx.Done():
			return
		}
	}
}

// sync applies the stored webhook of a server, unless h has applied the webhook of that number.
// Number 0 means that the store has lost the webhook: sync stores it again.
func (a *announcements) sync(server string, h *hook, number int64) error {
	if err := a.enter(a.ctx); err != nil {
		return err
	}
	defer func() { <-a.turn }()
	have := a.applied[server]
	if number == have.number && (number == 0 || have.by == h) {
		return nil
	}
	ctx, cancel := context.WithTimeout(a.ctx, storeLimit)
	defer cancel()
	if number == 0 {
		return a.store.Put(ctx, server, have.number, have.body)
	}
	n, body, err := a.store.Get(ctx, server)
	if errors.Is(err, session.ErrNotFound) { // the webhook was deleted or replaced meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	renewing, stop := context.WithTimeout(a.ctx, hookLimit)
	defer stop()
	_, err = h.renew(renewing, body)
	_, bad := errors.AsType[*rest.CatalogError](err)
	if err == nil || bad || errors.Is(err, rest.ErrElsewhere) || len(body) == 0 { // after any other error, sync tries again at the next heartbeat
		a.applied[server] = announced{h, n, body}
	}
	return err
}

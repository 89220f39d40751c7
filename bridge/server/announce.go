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
	store "github.com/mcp-bridge/bridge/internal/cluster/redis"
)

// announcements have a webhook, which reaches one instance, count at all of them, and at
// those that start later (S-043).
type announcements struct {
	store store.Hooks
	log   *slog.Logger
	hooks func() map[string]*hook // of the servers here
	news  chan map[string]int64   // what the store has, by server: the last beat's
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup

	turn chan struct{}        // held while a webhook is made to count here
	have map[string]announced // what counts here, by server; guarded by turn
}

// announced is one webhook.
type announced struct {
	by     *hook // where it counts: a server that was replaced has another
	number int64
	body   []byte
}

func newAnnouncements(s store.Hooks, hooks func() map[string]*hook, log *slog.Logger) *announcements {
	a := &announcements{store: s, log: log, hooks: hooks, news: make(chan map[string]int64, 1), turn: make(chan struct{}, 1), have: map[string]announced{}}
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.wg.Go(a.follow)
	return a
}

func (a *announcements) close() {
	a.stop()
	a.wg.Wait()
}

// hear is told which webhooks the store has.
func (a *announcements) hear(all map[string]int64) {
	select {
	case <-a.news: // which nobody has looked at yet
	default:
	}
	select {
	case a.news <- all:
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

// errUntold: a webhook counts here, and the other instances do not know of it.
var errUntold = errors.New("the other instances of the bridge could not be told")

// storeLimit bounds one operation of the store with a body.
const storeLimit = 5 * time.Second

// tell makes a webhook count here, and tells the others.
func (a *announcements) tell(ctx context.Context, server string, h *hook, body []byte) (tools int, err error) {
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
		return 0, errors.Join(errUntold, err)
	}
	a.have[server] = announced{h, n, bytes.Clone(body)}
	return tools, nil
}

// follow makes what other instances announce count here, until close.
func (a *announcements) follow() {
	for {
		select {
		case all := <-a.news:
			for name, h := range a.hooks() {
				if err := a.look(name, h, all[name]); err != nil && a.ctx.Err() == nil {
					a.log.Warn("a catalogue that another instance got by a webhook cannot be used here yet", "server", name, "err", err)
				}
			}
		case <-a.ctx.Done():
			return
		}
	}
}

// look makes the webhook of that number count here, if it is another than the one that
// does. A store without any has lost it.
func (a *announcements) look(server string, h *hook, number int64) error {
	if err := a.enter(a.ctx); err != nil {
		return err
	}
	defer func() { <-a.turn }()
	have := a.have[server]
	if number == have.number && (number == 0 || have.by == h) {
		return nil
	}
	ctx, cancel := context.WithTimeout(a.ctx, storeLimit)
	defer cancel()
	if number == 0 {
		return a.store.Put(ctx, server, have.number, have.body)
	}
	n, body, err := a.store.Get(ctx, server)
	if errors.Is(err, session.ErrNotFound) { // it has gone since, or somebody else has written it
		return nil
	}
	if err != nil {
		return err
	}
	renewing, stop := context.WithTimeout(a.ctx, hookLimit)
	defer stop()
	_, err = h.renew(renewing, body)
	_, bad := errors.AsType[*rest.CatalogError](err)
	if err == nil || bad || errors.Is(err, rest.ErrElsewhere) || len(body) == 0 { // otherwise with the next beat
		a.have[server] = announced{h, n, body}
	}
	return err
}

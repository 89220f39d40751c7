package redis

import (
	"context"
	"errors"
	"strconv"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// Hooks stores the number and the body of the last webhook of each server, for all instances.
type Hooks struct {
	s     *Store
	seals *seal.Shared
}

// Hooks returns the store of webhooks.
func (s *Store) Hooks() Hooks { return Hooks{s, seal.NewShared("cluster hook", s.o.Secrets...)} }

// hook returns the key of the last webhook of a server. It is in the hash slot of the members, since beats read both.
func (s *Store) hook(server string) string { return s.member("hook:" + server) }

// Next numbers the next webhook of a server.
func (h Hooks) Next(ctx context.Context, server string) (int64, error) {
	n, err := h.s.c.HIncrBy(ctx, h.s.hook(server), "c", 1).Result()
	return n, unavailable("number a webhook", err)
}

// Put stores the body of the webhook n, unless the store has a later one.
func (h Hooks) Put(ctx context.Context, server string, n int64, body []byte) error {
	key := h.s.hook(server)
	return unavailable("keep a webhook", putHook.Run(ctx, h.s.c, []string{key}, n, h.seals.Seal(sealContext(key, n), body)).Err())
}

// Get returns the last webhook of a server. If there is none, or its body cannot be opened, the error is
// session.ErrNotFound.
func (h Hooks) Get(ctx context.Context, server string) (n int64, body []byte, err error) {
	key := h.s.hook(server)
	all, err := h.s.c.HMGet(ctx, key, "n", "b").Result()
	if err != nil {
		return 0, nil, unavailable("read a webhook", err)
	}
	number, _ := all[0].(string)
	sealed, _ := all[1].(string)
	if n, err = strconv.ParseInt(number, 10, 64); err != nil {
		return 0, nil, session.ErrNotFound
	}
	if body, err = h.seals.Open(sealContext(key, n), []byte(sealed)); err != nil {
		return 0, nil, errors.Join(session.ErrNotFound, err)
	}
	return n, body, nil
}

// sealContext returns the context that a body is sealed for.
func sealContext(key string, n int64) string { return key + " " + strconv.FormatInt(n, 10) }

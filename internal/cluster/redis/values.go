package redis

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed swap.lua
var swapScript string

var swap = redis.NewScript(swapScript)

// Values keeps values that must count only once for all instances. It seals nothing.
type Values struct{ s *Store }

// Values returns where they are kept.
func (s *Store) Values() Values { return Values{s} }

// valueWithin bounds one request.
const valueWithin = 2 * time.Second

func (v Values) key(name string) string { return v.s.o.Prefix + ":v:" + name }

// Get returns the value of a name; nil without one.
func (v Values) Get(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, valueWithin)
	defer cancel()
	value, err := v.s.c.Get(ctx, v.key(name)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable("get a value", err)
	}
	return value, nil
}

// Swap puts a value in the place of another, for as long, and reports whether it has: only
// if old is there still. No old means that there must be none, and no value that there will
// be none.
func (v Values) Swap(ctx context.Context, name string, old, value []byte, life time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, valueWithin)
	defer cancel()
	done, err := swap.Run(ctx, v.s.c, []string{v.key(name)}, old, value, max(1, life.Milliseconds())).Int()
	if err != nil {
		return false, unavailable("put a value", err)
	}
	return done == 1, nil
}

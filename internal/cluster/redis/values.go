package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	swap = script("swap")
	end  = script("end")
)

// Values stores values that all instances share, and seals nothing.
type Values struct{ s *Store }

// Values returns the store of these values.
func (s *Store) Values() Values { return Values{s} }

// valueWithin bounds one request.
const valueWithin = 2 * time.Second

func (v Values) key(name string) string { return v.s.o.Prefix + ":v:" + name }

// Get returns the value of a name, or nil if there is none.
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

// Swap replaces the value of a name by value, if it is old now, and reports whether it did. A nil old means that there
// must be no value. A nil value removes the old one. The new value lives for life.
func (v Values) Swap(ctx context.Context, name string, old, value []byte, life time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, valueWithin)
	defer cancel()
	done, err := swap.Run(ctx, v.s.c, []string{v.key(name)}, old, value, max(1, life.Milliseconds())).Int()
	if err != nil {
		return false, unavailable("put a value", err)
	}
	return done == 1, nil
}

// maxEnded bounds the number of ended logins that are stored.
const maxEnded = 20_000

func (v Values) ended() string { return v.s.o.Prefix + ":ended" }

// End records that the login with that id has ended. The record lives for life, by the clock of Redis.
func (v Values) End(ctx context.Context, id string, life time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, valueWithin)
	defer cancel()
	return unavailable("note an end", end.Run(ctx, v.s.c, []string{v.ended()}, id, max(1, life.Milliseconds()), maxEnded).Err())
}

// endedAgain is how long before the mark Ended begins. After a failover the clock of Redis may be behind by that time,
// so that new ends come before the mark.
const endedAgain = time.Minute

// Ended returns the logins that ended since the mark, or up to endedAgain before it, and the next mark. An empty mark
// returns all that are stored.
func (v Values) Ended(ctx context.Context, mark string) (ids []string, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, valueWithin)
	defer cancel()
	from := "-"
	ms, _, _ := strings.Cut(mark, "-")
	if at, err := strconv.ParseInt(ms, 10, 64); err == nil {
		from = strconv.FormatInt(max(0, at-endedAgain.Milliseconds()), 10)
	}
	all, err := v.s.c.XRangeN(ctx, v.ended(), from, "+", maxEnded+maxEnded/10).Result() // the stream may be a little longer than maxEnded
	if err != nil {
		return nil, "", unavailable("ask for ends", err)
	}
	next = mark
	for _, one := range all {
		next = one.ID
		if id, ok := one.Values["i"].(string); ok {
			ids = append(ids, id)
		}
	}
	return ids, next, nil
}

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

// Values stores values of which each counts once for all instances. It seals nothing.
type Values struct{ s *Store }

// Values returns the store of these values.
func (s *Store) Values() Values { return Values{s} }

// valueWithin bounds one request.
const valueWithin = 2 * time.Second

func (v Values) key(name string) string { return v.s.o.Prefix + ":v:" + name }

// Get returns the value of a name, or nil.
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

// Swap replaces old by value, which then lives for that long. It reports whether it did: old
// must be the present value. A nil old means that there must be no value, and a nil value
// removes it.
func (v Values) Swap(ctx context.Context, name string, old, value []byte, life time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, valueWithin)
	defer cancel()
	done, err := swap.Run(ctx, v.s.c, []string{v.key(name)}, old, value, max(1, life.Milliseconds())).Int()
	if err != nil {
		return false, unavailable("put a value", err)
	}
	return done == 1, nil
}

// maxEnded bounds the stored ended logins.
const maxEnded = 20_000

func (v Values) ended() string { return v.s.o.Prefix + ":ended" }

// End records, for that long by the clock of Redis, that a login ended. Its id is random.
func (v Values) End(ctx context.Context, id string, life time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, valueWithin)
	defer cancel()
	return unavailable("note an end", end.Run(ctx, v.s.c, []string{v.ended()}, id, max(1, life.Milliseconds()), maxEnded).Err())
}

// endedAgain is the time before the mark from which ended logins are returned again. After a failover
// the clock of Redis may be behind by up to that time, and may record ends below the mark.
const endedAgain = time.Minute

// Ended returns the logins that ended since the call that returned the mark, or in the minute
// before, and the next mark. Without a mark it returns all stored ended logins.
func (v Values) Ended(ctx context.Context, mark string) (ids []string, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, valueWithin)
	defer cancel()
	from := "-"
	ms, _, _ := strings.Cut(mark, "-")
	if at, err := strconv.ParseInt(ms, 10, 64); err == nil {
		from = strconv.FormatInt(max(0, at-endedAgain.Milliseconds()), 10)
	}
	all, err := v.s.c.XRangeN(ctx, v.ended(), from, "+", maxEnded+maxEnded/10).Result() // it may have a few more
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

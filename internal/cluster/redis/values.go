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

// maxEnded is how many logins are noted that have ended.
const maxEnded = 20_000

func (v Values) ended() string { return v.s.o.Prefix + ":ended" }

// End notes that a login has ended, for as long by the clock of Redis. Its id was made up
// and says nothing.
func (v Values) End(ctx context.Context, id string, life time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, valueWithin)
	defer cancel()
	return unavailable("note an end", end.Run(ctx, v.s.c, []string{v.ended()}, id, max(1, life.Milliseconds()), maxEnded).Err())
}

// endedAgain is for how long the same ends are returned again: a Redis that has taken over may
// have a clock that is so much behind, and notes ends below the mark.
const endedAgain = time.Minute

// Ended returns the logins that were noted since the call that has returned the mark, those of
// the minute before, and the next mark. Without one it is all that are noted still.
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

package redis

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
	"github.com/mcp-bridge/bridge/internal/seal"
)

//go:embed offer.lua
var offerScript string

var addOffer = redis.NewScript(offerScript)

// Offers is the queue of openings that workers take: a stream for each server. What each
// says is sealed.
type Offers struct {
	s     *Store
	seals *seal.Shared
	log   *slog.Logger
}

var _ queue.Queue = (*Offers)(nil)

// Offers returns where that is kept. log is told of what somebody else has put there.
func (s *Store) Offers(log *slog.Logger) *Offers {
	return &Offers{s, seal.NewShared("cluster offer", s.o.Secrets...), log}
}

const (
	// workers is the group of those who read, and the name of all of them: whoever is
	// free goes on with what another has left.
	workers = "w"
	// offerLife is how long a line is kept to which nothing is added.
	offerLife = time.Hour
)

// line is beside those of other servers, so that one request reads several in Redis Cluster.
func (q *Offers) line(server string) string { return q.s.o.Prefix + ":{q}:" + server }

func (q *Offers) lines(servers []string) []string {
	keys := make([]string, len(servers))
	for i, name := range servers {
		keys[i] = q.line(name)
	}
	return keys
}

// Add implements offers.Queue.
func (q *Offers) Add(ctx context.Context, server string, o queue.Offer, most int) (string, error) {
	text, _ := json.Marshal(o) // nothing in it can fail
	key := q.line(server)
	entry, err := addOffer.Run(ctx, q.s.c, []string{key}, most, q.seals.Seal(key, text), offerLife.Milliseconds()).Text()
	switch {
	case errors.Is(err, redis.Nil):
		return "", session.ErrFull
	case err != nil:
		q.heal(ctx, err, key)
		return "", unavailable("offer an opening", err)
	}
	return entry, nil
}

// Take implements offers.Queue.
func (q *Offers) Take(ctx context.Context, servers []string, wait time.Duration) ([]queue.Taken, error) {
	keys := q.lines(servers)
	args := &redis.XReadGroupArgs{Group: workers, Consumer: workers, Count: 1, Block: wait, Streams: keys}
	for range keys {
		args.Streams = append(args.Streams, ">")
	}
	found, err := q.s.c.XReadGroup(ctx, args).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil && strings.HasPrefix(err.Error(), "NOGROUP"): // nothing was offered yet, or the store was emptied
		return nil, q.begin(ctx, keys)
	case err != nil:
		q.heal(ctx, err, keys...)
		return nil, unavailable("take an offer", err)
	}
	var all []queue.Taken
	for i, key := range keys {
		for _, s := range found {
			if s.Stream == key {
				all = append(all, q.opened(ctx, servers[i], s.Messages)...)
			}
		}
	}
	return all, nil
}

// begin makes the lines that are not there.
func (q *Offers) begin(ctx context.Context, keys []string) error {
	for _, key := range keys {
		if err := q.s.c.XGroupCreateMkStream(ctx, key, workers, "0").Err(); err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
			q.heal(ctx, err, key)
			return unavailable("begin a line of offers", err)
		}
	}
	return nil
}

// Overdue implements offers.Queue.
func (q *Offers) Overdue(ctx context.Context, servers []string, after time.Duration, most int) ([]queue.Taken, error) {
	keys := q.lines(servers)
	answers, err := q.s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: key, Group: workers, Consumer: workers, MinIdle: after, Start: "0-0", Count: int64(most)})
		}
		return nil
	})
	if len(answers) < len(keys) {
		return nil, unavailable("look for overdue offers", err)
	}
	var all []queue.Taken
	err = nil
	for i, a := range answers {
		found, _, failed := a.(*redis.XAutoClaimCmd).Result()
		switch {
		case failed == nil:
			all = append(all, q.opened(ctx, servers[i], found)...)
		case !strings.HasPrefix(failed.Error(), "NOGROUP"): // otherwise nothing was taken yet
			q.heal(ctx, failed, keys[i])
			err = unavailable("look for overdue offers", failed)
		}
	}
	return all, err
}

// opened reads entries of a line. What this cluster has not written is dropped (S-082).
func (q *Offers) opened(ctx context.Context, server string, entries []redis.XMessage) (all []queue.Taken) {
	key := q.line(server)
	for _, e := range entries {
		t := queue.Taken{Server: server, Entry: e.ID}
		sealed, _ := e.Values["o"].(string)
		text, err := q.seals.Open(key, []byte(sealed))
		if err == nil {
			err = json.Unmarshal(text, &t.Offer)
		}
		if err == nil {
			all = append(all, t)
			continue
		}
		q.log.Warn("an entry in the line of offers was dropped: no instance with this secret has written it", "server", server, "entry", e.ID)
		_ = q.Done(ctx, server, e.ID) // otherwise it comes again
	}
	return all
}

// heal removes lines that somebody else has made useless: fronts soon find that their offers
// are missing, and offer anew.
func (q *Offers) heal(ctx context.Context, err error, keys ...string) {
	said := err.Error()
	if !strings.Contains(said, "WRONGTYPE") && !strings.Contains(said, "last possible ID") {
		return
	}
	for _, key := range keys {
		kind, err := q.s.c.Type(ctx, key).Result()
		if err != nil || kind == "none" || kind == "stream" && strings.Contains(said, "WRONGTYPE") {
			continue
		}
		q.log.Warn("a line of offers was removed: somebody else has written to it what is none", "key", key)
		_ = q.s.c.Del(ctx, key).Err() // the next attempt finds it
	}
}

// Back implements offers.Queue.
func (q *Offers) Back(ctx context.Context, t queue.Taken) error {
	long := time.Hour.Milliseconds()
	if err := q.s.c.Do(ctx, "XCLAIM", q.line(t.Server), workers, workers, 0, t.Entry, "IDLE", long, "JUSTID").Err(); err != nil {
		return unavailable("give an offer back", err)
	}
	return nil
}

// Has implements offers.Queue.
func (q *Offers) Has(ctx context.Context, server, entry string) (bool, error) {
	key := q.line(server)
	found, err := q.s.c.XRange(ctx, key, entry, entry).Result()
	if err != nil {
		q.heal(ctx, err, key)
		return false, unavailable("look for an offer", err)
	}
	return len(found) > 0, nil
}

// Done implements offers.Queue.
func (q *Offers) Done(ctx context.Context, server, entry string) error {
	key := q.line(server)
	_, err := q.s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.XAck(ctx, key, workers, entry)
		p.XDel(ctx, key, entry)
		return nil
	})
	if err != nil {
		return unavailable("remove an offer", err)
	}
	return nil
}

// Lengths implements offers.Queue.
func (q *Offers) Lengths(ctx context.Context, servers []string) ([]int, error) {
	answers, err := q.s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range q.lines(servers) {
			p.XLen(ctx, key)
		}
		return nil
	})
	if len(answers) < len(servers) {
		return nil, unavailable("measure the lines of offers", err)
	}
	all := make([]int, len(servers))
	for i, a := range answers {
		n, failed := a.(*redis.IntCmd).Result()
		if all[i] = int(n); failed != nil && !strings.HasPrefix(failed.Error(), "WRONGTYPE") {
			return nil, unavailable("measure the lines of offers", failed)
		}
	}
	return all, nil
}

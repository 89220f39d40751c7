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

//go:embed request.lua
var requestScript string

var addRequest = redis.NewScript(requestScript)

// Requests is the queue of requests for workers. Each line is a stream of Redis, and each request is sealed.
type Requests struct {
	s     *Store
	seals *seal.Shared
	log   *slog.Logger
}

var _ queue.Queue = (*Requests)(nil)

// Requests returns the queue. It logs to log what other programs wrote to its keys.
func (s *Store) Requests(log *slog.Logger) *Requests {
	return &Requests{s, seal.NewShared("cluster offer", s.o.Secrets...), log}
}

const (
	// workers is the name of the consumer group and of its only consumer. So any worker can continue the work of
	// another.
	workers = "w"
	// requestLife is how long a line without new requests is stored.
	requestLife = time.Hour
)

// line returns the key of a line. All lines are in one hash slot of Redis Cluster, so that one command can read
// several.
func (r *Requests) line(server string) string { return r.s.o.Prefix + ":{q}:" + server }

func (r *Requests) lines(servers []string) []string {
	keys := make([]string, len(servers))
	for i, name := range servers {
		keys[i] = r.line(name)
	}
	return keys
}

// Add implements queue.Queue.
func (r *Requests) Add(ctx context.Context, server string, o queue.Request, most int) (string, error) {
	text, _ := json.Marshal(o) // a Request always encodes
	key := r.line(server)
	entry, err := addRequest.Run(ctx, r.s.c, []string{key}, most, r.seals.Seal(key, text), requestLife.Milliseconds()).Text()
	switch {
	case errors.Is(err, redis.Nil):
		return "", session.ErrFull
	case err != nil:
		r.heal(ctx, err, key)
		return "", unavailable("request a connection", err)
	}
	return entry, nil
}

// Take implements queue.Queue.
func (r *Requests) Take(ctx context.Context, servers []string, wait time.Duration) ([]queue.Taken, error) {
	keys := r.lines(servers)
	args := &redis.XReadGroupArgs{
		Group:    workers,
		Consumer: workers,
		Count:    1,
		Block:    wait,
		Streams:  keys,
	}
	for range keys {
		args.Streams = append(args.Streams, ">")
	}
	found, err := r.s.c.XReadGroup(ctx, args).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil && strings.HasPrefix(err.Error(), "NOGROUP"): // there was no request before, or the store was emptied
		return nil, r.begin(ctx, keys)
	case err != nil:
		r.heal(ctx, err, keys...)
		return nil, unavailable("take a request", err)
	}
	var all []queue.Taken
	for i, key := range keys {
		for _, s := range found {
			if s.Stream == key {
				all = append(all, r.opened(ctx, servers[i], s.Messages)...)
			}
		}
	}
	return all, nil
}

// begin creates the lines that do not exist.
func (r *Requests) begin(ctx context.Context, keys []string) error {
	for _, key := range keys {
		if err := r.s.c.XGroupCreateMkStream(ctx, key, workers, "0").Err(); err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
			r.heal(ctx, err, key)
			return unavailable("create a queue for workers", err)
		}
	}
	return nil
}

// Overdue implements queue.Queue.
func (r *Requests) Overdue(ctx context.Context, servers []string, after time.Duration, most int) ([]queue.Taken, error) {
	keys := r.lines(servers)
	answers, err := r.s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.XAutoClaim(ctx, &redis.XAutoClaimArgs{
				Stream:   key,
				Group:    workers,
				Consumer: workers,
				MinIdle:  after,
				Start:    "0-0",
				Count:    int64(most),
			})
		}
		return nil
	})
	if len(answers) < len(keys) {
		return nil, unavailable("look for overdue requests", err)
	}
	var all []queue.Taken
	err = nil
	for i, a := range answers {
		found, _, failed := a.(*redis.XAutoClaimCmd).Result()
		switch {
		case failed == nil:
			all = append(all, r.opened(ctx, servers[i], found)...)
		case !strings.HasPrefix(failed.Error(), "NOGROUP"): // NOGROUP means that no request was taken yet
			r.heal(ctx, failed, keys[i])
			err = unavailable("look for overdue requests", failed)
		}
	}
	return all, err
}

// opened reads entries of a line, and drops those that no instance wrote (S-082).
func (r *Requests) opened(ctx context.Context, server string, entries []redis.XMessage) (all []queue.Taken) {
	key := r.line(server)
	for _, e := range entries {
		t := queue.Taken{Server: server, Entry: e.ID}
		sealed, _ := e.Values["o"].(string)
		text, err := r.seals.Open(key, []byte(sealed))
		if err == nil {
			err = json.Unmarshal(text, &t.Request)
		}
		if err == nil {
			all = append(all, t)
			continue
		}
		r.log.Warn("dropped an entry of the queue for workers: no instance with this secret wrote it", "server", server, "entry", e.ID)
		_ = r.Done(ctx, server, e.ID) // if that fails, the entry comes again
	}
	return all
}

// heal removes lines that another program made useless. Fronts soon notice that their requests are missing, and add
// them again.
func (r *Requests) heal(ctx context.Context, err error, keys ...string) {
	text := err.Error()
	if !strings.Contains(text, "WRONGTYPE") && !strings.Contains(text, "last possible ID") {
		return
	}
	for _, key := range keys {
		kind, err := r.s.c.Type(ctx, key).Result()
		if err != nil || kind == "none" || kind == "stream" && strings.Contains(text, "WRONGTYPE") {
			continue
		}
		r.log.Warn("removed the queue for workers: another program wrote to its key; give the bridge a prefix of its own", "key", key)
		_ = r.s.c.Del(ctx, key).Err() // if that fails, the next attempt removes the key
	}
}

// Return implements queue.Queue.
func (r *Requests) Return(ctx context.Context, t queue.Taken) error {
	long := time.Hour.Milliseconds()
	if err := r.s.c.Do(ctx, "XCLAIM", r.line(t.Server), workers, workers, 0, t.Entry, "IDLE", long, "JUSTID").Err(); err != nil {
		return unavailable("return a request", err)
	}
	return nil
}

// Has implements queue.Queue.
func (r *Requests) Has(ctx context.Context, server, entry string) (bool, error) {
	key := r.line(server)
	found, err := r.s.c.XRange(ctx, key, entry, entry).Result()
	if err != nil {
		r.heal(ctx, err, key)
		return false, unavailable("look for a request", err)
	}
	return len(found) > 0, nil
}

// Done implements queue.Queue.
func (r *Requests) Done(ctx context.Context, server, entry string) error {
	key := r.line(server)
	_, err := r.s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.XAck(ctx, key, workers, entry)
		p.XDel(ctx, key, entry)
		return nil
	})
	if err != nil {
		return unavailable("remove a request", err)
	}
	return nil
}

// Lengths implements queue.Queue.
func (r *Requests) Lengths(ctx context.Context, servers []string) ([]int, error) {
	answers, err := r.s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range r.lines(servers) {
			p.XLen(ctx, key)
		}
		return nil
	})
	if len(answers) < len(servers) {
		return nil, unavailable("measure the queues for workers", err)
	}
	all := make([]int, len(servers))
	for i, a := range answers {
		n, failed := a.(*redis.IntCmd).Result()
		if all[i] = int(n); failed != nil && !strings.HasPrefix(failed.Error(), "WRONGTYPE") {
			return nil, unavailable("measure the queues for workers", failed)
		}
	}
	return all, nil
}

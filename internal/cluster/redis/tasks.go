package redis

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/internal/seal"
)

// Tasks stores which principals own tasks that servers created. The store reveals neither the id of a task nor its
// principal.
type Tasks struct {
	s     *Store
	seals *seal.Shared
}

// Tasks returns the store of task owners.
func (s *Store) Tasks() Tasks { return Tasks{s, seal.NewShared("cluster task", s.o.Secrets...)} }

const (
	// taskLife is how long the owner of a task is stored.
	taskLife = 24 * time.Hour
	// taskWithin bounds one request.
	taskWithin = 500 * time.Millisecond
)

func (t Tasks) key(server, id, principal string) string {
	sum := sha256.Sum256([]byte(id + "\x00" + principal))
	return t.s.o.Prefix + ":t:" + server + ":" + hex.EncodeToString(sum[:16])
}

// Note implements bridge.Owners.
func (t Tasks) Note(ctx context.Context, server, task, principal string) error {
	ctx, cancel := context.WithTimeout(ctx, taskWithin)
	defer cancel()
	key := t.key(server, task, principal)
	return unavailable("note a task", t.s.c.Set(ctx, key, t.seals.Seal(key, nil), taskLife).Err())
}

// Noted implements bridge.Owners. An entry that cannot be opened counts as missing.
func (t Tasks) Noted(ctx context.Context, server, principal string, tasks []string) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, taskWithin)
	defer cancel()
	answers, err := t.s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range tasks {
			p.Get(ctx, t.key(server, id, principal))
		}
		return nil
	})
	if err != nil && len(answers) < len(tasks) {
		return nil, unavailable("look for tasks", err)
	}
	noted := make([]bool, len(tasks))
	for i, a := range answers {
		sealed, err := a.(*redis.StringCmd).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, unavailable("look for tasks", err)
		}
		_, err = t.seals.Open(t.key(server, tasks[i], principal), []byte(sealed))
		noted[i] = err == nil
	}
	return noted, nil
}

// Package redis stores in Redis or Valkey which instances are alive, and which of them owns which session. It uses only
// commands of Redis 6.2. Each script has one key, so the package works with Redis Cluster. It seals all data about
// clients.
package redis

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/seal"
)

//go:embed *.lua
var scripts embed.FS

var (
	put        = script("put")
	take       = script("take")
	save       = script("save")
	keep       = script("keep")
	drop       = script("drop")
	join       = script("join")
	putHook    = script("hook")
	takeStream = script("replay")
)

func script(name string) *redis.Script {
	text, err := scripts.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // no script has that name
	}
	return redis.NewScript(string(text))
}

// Options configure a Store.
type Options struct {
	Prefix  string        // begins all keys
	Owner   string        // id of the instance that uses the Store
	Secrets []string      // the cluster's secrets: the first seals, and all open
	Life    time.Duration // how long the store keeps a record that is not extended
	// Hooks returns the names of the servers with a webhook. nil means that there are none.
	Hooks func() []string
}

// Client is the part of the library's client that a Store uses. A package that names the whole client compiles some
// 1,500 functions of the library.
type Client interface {
	redis.Cmdable
	Do(ctx context.Context, args ...any) *redis.Cmd
	Close() error
}

// Store is the store of sessions and members, as one instance uses it.
type Store struct {
	o       Options
	c       Client
	records *seal.Shared
	members *seal.Shared
	streams *seal.Shared

	mu   sync.Mutex // guards the rest
	self string     // last value of this instance's key
	is   string     // the member that self holds, as JSON
	runs string     // run ids of the masters at the last beat
}

var (
	_ session.Store    = (*Store)(nil)
	_ cluster.Registry = (*Store)(nil)
)

// New returns a Store that uses c. The caller closes c after the last use.
func New(c Client, o Options) *Store {
	return &Store{
		o:       o,
		c:       c,
		records: seal.NewShared("cluster record", o.Secrets...),
		members: seal.NewShared("cluster member", o.Secrets...),
		streams: seal.NewShared("cluster stream", o.Secrets...),
	}
}

// recordKey returns the key of the record of a session, or of a shared connection.
func (s *Store) recordKey(key string) string {
	if cluster.IsConnectionKey(key) {
		return s.o.Prefix + ":" + key
	}
	return s.o.Prefix + ":s:" + key
}

func (s *Store) member(id string) string { return s.o.Prefix + ":{m}:" + id }
func (s *Store) all() string             { return s.member("all") }
func unavailable(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", session.ErrUnavailable, what, err)
}

// sealed returns the record as the store has it: sealed JSON.
func (s *Store) sealed(r *session.Record) []byte {
	text, _ := json.Marshal(r) // a Record always encodes
	return s.records.Seal(s.recordKey(r.Key), text)
}

// opened reads the result of sealed. It reports false if it cannot open the record.
func (s *Store) opened(key, sealed string) (session.Record, bool) {
	r := session.Record{}
	text, err := s.records.Open(s.recordKey(key), []byte(sealed))
	if err != nil || json.Unmarshal(text, &r) != nil {
		return r, false
	}
	r.Key = key
	return r, true
}

func (s *Store) life() int64 { return s.o.Life.Milliseconds() }

// result reads the result of a script: a code, and texts.
func result(v any, err error) (code int64, texts []string, _ error) {
	if err != nil {
		return 0, nil, err
	}
	list, _ := v.([]any)
	for i, e := range list {
		switch e := e.(type) {
		case int64:
			if i == 0 {
				code = e
			}
		case string:
			texts = append(texts, e)
		}
	}
	return code, texts, nil
}

// moved returns the error of a script that found another owner. texts are that owner and its epoch.
func moved(texts []string) *session.Moved {
	m := &session.Moved{}
	if len(texts) == 2 {
		m.Owner = texts[0]
		m.Epoch, _ = strconv.ParseInt(texts[1], 10, 64)
	}
	return m
}

// Put implements session.Keeper.
func (s *Store) Put(ctx context.Context, h session.Held) (session.Held, error) {
	h.Owner, h.Epoch = s.o.Owner, h.Epoch+1
	code, texts, err := result(put.Run(ctx, s.c, []string{s.recordKey(h.Key)}, h.Owner, h.Epoch, s.life(), s.sealed(&h.Record)).Result())
	if err != nil {
		return session.Held{}, unavailable("put", err)
	}
	if m := moved(texts); code == 0 && (m.Owner != h.Owner || m.Epoch != h.Epoch) { // otherwise this is the answer to a request whose first answer was lost
		return session.Held{}, m
	}
	return h, nil
}

// Find implements session.Store. A record that cannot be opened counts as missing.
func (s *Store) Find(ctx context.Context, key string) (session.Held, error) {
	all, err := s.c.HMGet(ctx, s.recordKey(key), "o", "e", "b").Result()
	if err != nil {
		return session.Held{}, unavailable("find", err)
	}
	owner, known := all[0].(string)
	epoch, _ := all[1].(string)
	sealed, _ := all[2].(string)
	e, bad := strconv.ParseInt(epoch, 10, 64)
	r, ok := s.opened(key, sealed)
	if !known || bad != nil || !ok {
		return session.Held{}, session.ErrNotFound
	}
	return session.Held{
		Record: r,
		Owner:  owner,
		Epoch:  e,
	}, nil
}

// Take implements session.Store.
func (s *Store) Take(ctx context.Context, seen session.Held) (session.Held, error) {
	code, texts, err := result(take.Run(ctx, s.c, []string{s.recordKey(seen.Key)}, seen.Owner, seen.Epoch, s.o.Owner, s.life()).Result())
	switch {
	case err != nil:
		return session.Held{}, unavailable("take", err)
	case code < 0:
		return session.Held{}, session.ErrNotFound
	case code == 0:
		m := moved(texts)
		if m.Owner == s.o.Owner && m.Epoch == seen.Epoch+1 { // the answer to this very request was lost
			return s.Find(ctx, seen.Key)
		}
		return session.Held{}, m
	case len(texts) < 2:
		return session.Held{}, session.ErrNotFound
	}
	r, ok := s.opened(seen.Key, texts[1])
	if !ok {
		return session.Held{}, session.ErrNotFound
	}
	return session.Held{
		Record: r,
		Owner:  s.o.Owner,
		Epoch:  seen.Epoch + 1,
	}, nil
}

// Save implements session.Keeper.
func (s *Store) Save(ctx context.Context, h session.Held) error { return s.write(ctx, h, s.o.Owner) }

// Release implements session.Keeper.
func (s *Store) Release(ctx context.Context, h session.Held) error { return s.write(ctx, h, "") }

func (s *Store) write(ctx context.Context, h session.Held, owner string) error {
	n, err := save.Run(ctx, s.c, []string{s.recordKey(h.Key)}, s.o.Owner, h.Epoch, s.life(), s.sealed(&h.Record), owner).Int()
	if err != nil {
		return unavailable("save", err)
	}
	if n == 0 {
		return session.ErrFenced
	}
	return nil
}

// Keep implements session.Store.
func (s *Store) Keep(ctx context.Context, all []session.Held) (fenced []session.Held, err error) {
	answers, err := s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, h := range all {
			keep.Eval(ctx, p, []string{s.recordKey(h.Key)}, s.o.Owner, h.Epoch, s.life())
		}
		return nil
	})
	if err != nil {
		return nil, unavailable("keep", err)
	}
	for i, a := range answers {
		if n, err := a.(*redis.Cmd).Int(); err == nil && n == 0 {
			fenced = append(fenced, all[i])
		}
	}
	return fenced, nil
}

// Delete implements session.Keeper.
func (s *Store) Delete(ctx context.Context, h session.Held) error {
	return unavailable("delete", drop.Run(ctx, s.c, []string{s.recordKey(h.Key)}, s.o.Owner, h.Epoch).Err())
}

// forgetAfter is how long a member is listed after its last beat.
const forgetAfter = time.Hour

// Beat implements cluster.Registry. The store's clock decides which members are listed, since the clocks of instances
// may differ (S-014). If this instance's key is unchanged, Beat only extends its life, which works even when the
// store's memory is full. Beat makes two requests, one after the other.
func (s *Store) Beat(ctx context.Context, m cluster.Member, life time.Duration) (cluster.Seen, error) {
	var own *redis.StringCmd
	var ids *redis.StringSliceCmd
	asked := s.masters(ctx)
	_, err := s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		own = p.Get(ctx, s.member(m.ID))
		p.PExpire(ctx, s.member(m.ID), life)
		ids = p.ZRange(ctx, s.all(), 0, -1)
		return nil
	})
	runs, unasked := asked()
	if err == nil || errors.Is(err, redis.Nil) {
		err = unasked
	}
	if err != nil {
		return cluster.Seen{}, unavailable("beat", err)
	}
	text, _ := json.Marshal(m) // a Member always encodes
	s.mu.Lock()
	written := s.self
	if s.is != string(text) {
		written = ""
	}
	same := s.runs == runs
	s.mu.Unlock()
	evicts := ""
	if !same {
		if evicts, err = s.evicts(ctx); err != nil {
			return cluster.Seen{}, unavailable("beat", err)
		}
		s.mu.Lock()
		s.runs = runs
		s.mu.Unlock()
	}
	seen := cluster.Seen{
		Run:    runs,
		Absent: own.Err() != nil,
		Evicts: evicts,
	}
	write := seen.Absent || own.Val() != written
	if write {
		written = string(s.members.Seal(s.member(m.ID), text))
	}
	keys := []string{s.member(m.ID)}
	for _, id := range ids.Val() {
		if id != m.ID {
			keys = append(keys, s.member(id))
		}
	}
	var values *redis.SliceCmd
	var set *redis.StatusCmd
	hooks := map[string]*redis.StringCmd{}
	_, err = s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		if s.o.Hooks != nil {
			for _, name := range s.o.Hooks() {
				hooks[name] = p.HGet(ctx, s.hook(name), "n")
			}
		}
		if write {
			set = p.Set(ctx, s.member(m.ID), written, life)
		}
		join.Eval(ctx, p, []string{s.all()}, m.ID, forgetAfter.Milliseconds())
		values = p.MGet(ctx, keys...)
		return nil
	})
	if err != nil && (values.Err() != nil || seen.Absent && set.Err() != nil) { // when the memory is full, only the other commands fail, and the instance is alive nevertheless
		return cluster.Seen{}, unavailable("beat", err)
	}
	if write && set.Err() == nil {
		s.mu.Lock()
		s.self, s.is = written, string(text)
		s.mu.Unlock()
	}
	for name, c := range hooks {
		if n, err := c.Int64(); err == nil {
			if seen.Hooks == nil {
				seen.Hooks = map[string]int64{}
			}
			seen.Hooks[name] = n
		}
	}
	for i, v := range values.Val() {
		sealed, _ := v.(string)
		var other cluster.Member
		text, err := s.members.Open(keys[i], []byte(sealed))
		if err == nil && json.Unmarshal(text, &other) == nil && s.member(other.ID) == keys[i] {
			seen.Members = append(seen.Members, other)
		} else if sealed != "" && err != nil {
			seen.Sealed = append(seen.Sealed, strings.TrimPrefix(keys[i], s.member("")))
		}
	}
	return seen, nil
}

// masters requests the run ids of the store's masters in the background: a new master may lack the last writes. The
// function that it returns waits for the answer.
func (s *Store) masters(ctx context.Context) func() (string, error) {
	var runs []string
	var err error
	var asked sync.WaitGroup
	asked.Go(func() { runs, err = s.info(ctx, "server", "run_id:") })
	return func() (string, error) {
		asked.Wait()
		return strings.Join(runs, " "), err
	}
}

// evicts returns the policy by which the store evicts keys that have not expired, or "".
func (s *Store) evicts(ctx context.Context) (string, error) {
	policies, err := s.info(ctx, "memory", "maxmemory_policy:")
	for _, p := range policies {
		if p != "" && p != "noeviction" {
			return p, err
		}
	}
	return "", err
}

// info reads one line in a section of INFO from each master.
func (s *Store) info(ctx context.Context, section, line string) (all []string, err error) {
	var mu sync.Mutex
	ask := func(ctx context.Context, c redis.Cmdable) error {
		text, err := c.Info(ctx, section).Result()
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(text, line)
		value, _, _ := strings.Cut(rest, "\r\n")
		mu.Lock()
		defer mu.Unlock()
		all = append(all, value)
		return nil
	}
	if c, several := s.c.(*redis.ClusterClient); several {
		err = c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return ask(ctx, c) })
	} else {
		err = ask(ctx, s.c)
	}
	slices.Sort(all)
	return all, err
}

// Present implements cluster.Registry.
func (s *Store) Present(ctx context.Context, id string) (bool, error) {
	n, err := s.c.Exists(ctx, s.member(id)).Result()
	return n > 0, unavailable("look for a member", err)
}

// Leave implements cluster.Registry.
func (s *Store) Leave(ctx context.Context, id string) error {
	if err := s.c.Del(ctx, s.member(id)).Err(); err != nil {
		return unavailable("leave", err)
	}
	return s.c.ZRem(ctx, s.all(), id).Err()
}

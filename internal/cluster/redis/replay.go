package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mcp-bridge/bridge/bridge/replay"
)

// Streams stores the copies of sessions' streams, each in a stream of Redis. Each entry is sealed for its stream and
// id.
//
// The id of an entry is SEQ-0 for an event, 0-1 for the beginning, and SEQ-2 for the end. An entry with the id MARK-0
// prevents that the former owner adds more.
type Streams struct{ s *Store }

var _ replay.Store = Streams{}

// Streams returns the store of copied streams.
func (s *Store) Streams() Streams { return Streams{s} }

const (
	// streamLife is how long a stream is stored after its last entry.
	streamLife = 10 * time.Minute
	// finishedLife is how long a stream is stored that has ended. Mostly its client has received all of it.
	finishedLife = 2 * time.Minute
	// streamLength is how many events of a stream are stored, approximately.
	streamLength = 256
)

func (s *Store) stream(session, stream string) string {
	return s.o.Prefix + ":r:" + session + ":" + stream
}

// suffix is the second part of an entry's id, by the kind of the entry.
var suffix = map[replay.Kind]string{replay.Began: "-1", replay.Added: "-0", replay.Finished: "-2"}

// Write implements replay.Store.
func (s Streams) Write(ctx context.Context, all []replay.Entry) error {
	answers, err := s.s.c.Pipelined(ctx, func(p redis.Pipeliner) error {
		touched := map[string]time.Duration{}
		for i := range all {
			e := &all[i]
			key := s.s.stream(e.Session, e.Stream)
			if e.Kind == replay.Dropped {
				delete(touched, key)
				p.Del(ctx, key)
				continue
			}
			entryID := strconv.FormatInt(e.Seq, 10) + suffix[e.Kind]
			p.XAdd(ctx, &redis.XAddArgs{
				Stream: key,
				MaxLen: streamLength,
				Approx: true,
				ID:     entryID,
				Values: []any{"b", s.s.streams.Seal(key+" "+entryID, e.Payload())},
			})
			if touched[key] = streamLife; e.Kind == replay.Finished {
				touched[key] = finishedLife
			}
		}
		for key, life := range touched {
			p.PExpire(ctx, key, life)
		}
		return nil
	})
	if err != nil && len(answers) == 0 {
		return unavailable("copy a stream", err)
	}
	for _, a := range answers {
		if err := a.Err(); err != nil && !strings.Contains(err.Error(), "equal or smaller") { // another instance has set a mark
			return unavailable("copy a stream", err)
		}
	}
	return nil
}

// Take implements replay.Store.
func (s Streams) Take(ctx context.Context, session, stream string, seq, mark int64) (replay.Taken, error) {
	key := s.s.stream(session, stream)
	list, err := takeStream.Run(ctx, s.s.c, []string{key}, strconv.FormatInt(mark, 10)+"-0", streamLife.Milliseconds()).Slice()
	if errors.Is(err, redis.Nil) {
		return replay.Taken{}, replay.ErrForgotten
	}
	if err != nil {
		return replay.Taken{}, unavailable("take a stream", err)
	}
	var all []replay.Entry
	for _, raw := range list {
		pair, _ := raw.([]any)
		if len(pair) != 2 {
			continue
		}
		entryID, _ := pair[0].(string)
		fields, _ := pair[1].([]any)
		if len(fields) != 2 || fields[0] != "b" {
			continue // a mark
		}
		sealed, _ := fields[1].(string)
		text, err := s.s.streams.Open(key+" "+entryID, []byte(sealed))
		if err != nil {
			return replay.Taken{}, replay.ErrForgotten // another program wrote the entry
		}
		e := replay.Entry{Session: session, Stream: stream}
		at, kind, _ := strings.Cut(entryID, "-")
		if e.Seq, err = strconv.ParseInt(at, 10, 64); err != nil {
			return replay.Taken{}, replay.ErrForgotten
		}
		for k, one := range suffix {
			if one == "-"+kind {
				e.Kind = k
			}
		}
		var ok bool
		if e.Open, e.Data, ok = replay.ParsePayload(text); !ok {
			return replay.Taken{}, replay.ErrForgotten
		}
		all = append(all, e)
	}
	return replay.Read(all, seq)
}

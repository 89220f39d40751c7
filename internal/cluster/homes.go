package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/bridge/session"
)

// A connection that is shared over all instances has a home: the one that has claimed
// it. A claim is kept in the store as a session is, under a key that begins with this.
const homes = "l:"

// HomeKey returns the key under which the home is kept of a server's connections that
// are alike by what is given.
func HomeKey(server, alike string) string {
	sum := sha256.Sum256([]byte(alike))
	return homes + server + ":" + hex.EncodeToString(sum[:16])
}

// IsHome reports whether a key is that of a home, and not a session's.
func IsHome(key string) bool { return strings.HasPrefix(key, homes) }

// Claim makes this instance the home of a key, unless another one is, which it returns
// then. room is asked before: its error says that there is none for one more. An instance
// that is about to stop claims nothing: it returns the one that should. While the store is
// out of reach there are no new homes: the error is ErrUnavailable.
func (n *Node) Claim(ctx context.Context, key, server string, room func() error) (at Member, mine bool, err error) {
	if n.Holds(key) {
		return Member{}, true, nil
	}
	if err := n.Await(ctx, ""); err != nil {
		return Member{}, false, err
	}
	found, err := n.Find(ctx, key)
	if errors.Is(err, session.ErrNotFound) { // perhaps the store has lost it, and the home claims it again
		if err = n.Beat(ctx); err == nil {
			found, err = n.Find(ctx, key)
		}
		if errors.Is(err, session.ErrNotFound) && n.mayReturn() {
			return Member{}, false, session.ErrUnavailable
		}
	}
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return Member{}, false, err
	}
	free := err != nil || found.Owner == "" || found.Owner == n.o.Self.ID
	if !free {
		dead, err := n.Dead(ctx, found.Owner)
		if err != nil {
			return Member{}, false, err
		}
		if free = dead; dead {
			n.o.Peers.Bury(found.Owner)
		}
	}
	good := n.good.Load()
	n.mu.Lock()
	draining, may := n.drains.Load(), !time.Now().Before(n.noTakes)
	n.mu.Unlock()
	switch {
	case !free:
		return n.colleague(ctx, found.Owner)
	case draining:
		if least, ok := n.Least(); ok {
			return least, false, nil
		}
		return Member{}, false, session.ErrUnavailable
	case !may || !n.fresh(good):
		return Member{}, false, session.ErrUnavailable
	}
	if full := room(); full != nil {
		return Member{}, false, full
	}
	one, cancel := context.WithTimeout(ctx, tries)
	defer cancel()
	var h session.Held
	if err != nil { // nobody has it
		h, err = n.o.Store.Put(one, session.Held{Record: session.Record{Key: key, Server: server}})
	} else {
		h, err = n.o.Store.Take(one, found)
	}
	if moved, ok := errors.AsType[*session.Moved](err); ok && moved.Owner != "" && moved.Owner != n.o.Self.ID {
		return n.colleague(ctx, moved.Owner)
	}
	if err != nil {
		return Member{}, false, errors.Join(session.ErrUnavailable, err)
	}
	if err := n.begin(h, good); err != nil {
		return Member{}, false, err
	}
	return Member{}, true, nil
}

// mayReturn reports whether another instance may put again what the store has lost.
func (n *Node) mayReturn() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.members)+len(n.forgot) > 1 && time.Now().Before(n.emptied) // it has forgotten the members, too
}

// colleague returns another instance that the store names.
func (n *Node) colleague(ctx context.Context, id string) (Member, bool, error) {
	m, ok := n.Member(id)
	if !ok {
		_ = n.Beat(ctx) // it is new
		m, ok = n.Member(id)
	}
	if !ok {
		return Member{}, false, session.ErrUnavailable
	}
	return m, false, nil
}

// Unclaim gives a home up.
func (n *Node) Unclaim(ctx context.Context, key string) error {
	n.mu.Lock()
	e := n.held[key]
	n.mu.Unlock()
	if e == nil {
		return nil
	}
	return n.Delete(ctx, e.Held)
}

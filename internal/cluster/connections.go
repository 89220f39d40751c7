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

// connectionPrefix begins the keys of shared connections. Like a session, a shared connection has one owner among the
// instances, so the store holds both in the same form.
const connectionPrefix = "l:"

// ConnectionKey returns the store's key for the shared connection to a server with that affinity key.
func ConnectionKey(server, affinity string) string {
	sum := sha256.Sum256([]byte(affinity))
	return connectionPrefix + server + ":" + hex.EncodeToString(sum[:16])
}

// IsConnectionKey reports whether a key is that of a shared connection, not that of a session.
func IsConnectionKey(key string) bool { return strings.HasPrefix(key, connectionPrefix) }

// Claim makes this instance the owner of a shared connection, or returns the instance that owns it. Before Claim takes
// a connection, it calls room, whose error means that there is no room. An instance that is about to stop takes none,
// and returns an instance that may. If the store is unreachable, the error is ErrUnavailable.
func (n *Node) Claim(ctx context.Context, key, server string, room func() error) (at Member, mine bool, err error) {
	if n.Holds(key) {
		return Member{}, true, nil
	}
	if err := n.Await(ctx, ""); err != nil {
		return Member{}, false, err
	}
	found, err := n.Find(ctx, key)
	if errors.Is(err, session.ErrNotFound) { // the store may have lost the record, and the owner will put it again
		if err = n.Beat(ctx); err == nil {
			found, err = n.Find(ctx, key)
		}
		if errors.Is(err, session.ErrNotFound) && n.mayBePutAgain() {
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
			n.o.Peers.Disconnect(found.Owner)
		}
	}
	good := n.lastGood.Load()
	n.mu.Lock()
	draining, may := n.draining.Load(), !time.Now().Before(n.noTakesUntil)
	n.mu.Unlock()
	switch {
	case !free:
		return n.otherOwner(ctx, found.Owner)
	case draining:
		if least, ok := n.LeastLoaded(); ok {
			return least, false, nil
		}
		return Member{}, false, session.ErrUnavailable
	case !may || !n.fresh(good):
		return Member{}, false, session.ErrUnavailable
	}
	if full := room(); full != nil {
		return Member{}, false, full
	}
	one, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	var h session.Held
	if err != nil { // the connection has no owner
		h, err = n.o.Store.Put(one, session.Held{Record: session.Record{Key: key, Server: server}})
	} else {
		h, err = n.o.Store.Take(one, found)
	}
	if moved, ok := errors.AsType[*session.Moved](err); ok && moved.Owner != "" && moved.Owner != n.o.Self.ID {
		return n.otherOwner(ctx, moved.Owner)
	}
	if err != nil {
		return Member{}, false, errors.Join(session.ErrUnavailable, err)
	}
	if err := n.begin(h, good); err != nil {
		return Member{}, false, err
	}
	return Member{}, true, nil
}

// mayBePutAgain reports whether another instance may still put a record again that the store lost.
func (n *Node) mayBePutAgain() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.members)+len(n.goneAt) > 1 && time.Now().Before(n.emptiedUntil) // a store that lost records also lost members
}

// otherOwner returns the instance that owns a connection, by its id in the store.
func (n *Node) otherOwner(ctx context.Context, id string) (Member, bool, error) {
	m, ok := n.Member(id)
	if !ok {
		_ = n.Beat(ctx) // the instance may be new
		m, ok = n.Member(id)
	}
	if !ok {
		return Member{}, false, session.ErrUnavailable
	}
	return m, false, nil
}

// Unclaim gives up the ownership of a shared connection.
func (n *Node) Unclaim(ctx context.Context, key string) error {
	n.mu.Lock()
	e := n.held[key]
	n.mu.Unlock()
	if e == nil {
		return nil
	}
	return n.Delete(ctx, e.Held)
}

// Package session stores sessions as plain data, without the live connections that serve them, so
// that another instance can continue a session.
package session

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
)

// Record is what is stored of a session.
type Record struct {
	Key       string      `json:"-"` // Key of the session's id; the id itself is a secret
	Server    string      // empty means the aggregate of all servers
	Principal string      // of the client; empty without access rules
	Revision  string      // protocol revision agreed with the client
	Params    []byte      // of initialize, raw JSON
	Header    http.Header `json:",omitempty"` // forwarded headers of the client
	Level     []byte      `json:",omitempty"` // params of the last logging/setLevel, raw JSON
	Subs      []string    `json:",omitempty"` // URIs of the resources that the client subscribes to
	// Greeting is what the client knows of the server: a raw JSON object with protocolVersion and capabilities. It is
	// empty until the handshake has succeeded.
	Greeting []byte `json:",omitempty"`
	// Carry holds, by server, the data with which another instance can resume the session's connection: see
	// bridge.Resumable.
	Carry map[string][]byte `json:",omitempty"`
	// Bound means that the session ends with the process that began it. A session over HTTP+SSE is bound, since it ends
	// with its stream.
	Bound bool `json:"-"`
}

// Held is a record, with the owner who may write it.
type Held struct {
	Record
	Owner string // name of the owner; empty if the owner released the session
	Epoch int64  // increases each time that the owner changes
}

// Errors of a Store.
var (
	ErrNotFound = errors.New("no such session")
	ErrFull     = errors.New("too many sessions")
	// ErrFenced means that another instance owns the session by now.
	ErrFenced = errors.New("another instance has the session")
	// ErrUnavailable means that the store is unreachable. Whether the request had an effect is unknown.
	ErrUnavailable = errors.New("the store of sessions is out of reach")
)

// Moved is the error of Put and Take if another owner was faster.
type Moved struct {
	Owner string // owner of the session; empty if the owner released the session
	Epoch int64  // the owner's epoch
}

// Error implements error.
func (*Moved) Error() string { return ErrFenced.Error() }

// Unwrap makes a Moved a kind of ErrFenced.
func (*Moved) Unwrap() error { return ErrFenced }

// Keeper is what an owner of sessions needs of a Store. Its methods may be called concurrently.
type Keeper interface {
	// Put adds a record for this owner, and returns it with the next epoch. h.Epoch is the last known epoch, or 0 for a
	// new session. The error is ErrFull at the limit of sessions, and a *Moved if there is a record already.
	Put(ctx context.Context, h Held) (Held, error)
	// Save writes the record again. If another owner has it, or it is gone, the error is ErrFenced.
	Save(ctx context.Context, h Held) error
	// Release writes the record without an owner, so that any owner can take it. If another owner has it, or it is
	// gone, the error is ErrFenced.
	Release(ctx context.Context, h Held) error
	// Delete removes the record. If another owner has it, or it is gone, Delete does nothing.
	Delete(ctx context.Context, h Held) error
}

// Leased is a Keeper whose sessions other instances may take over.
type Leased interface {
	Keeper
	// Ready reports whether this instance surely owns its sessions, so that requests may begin. It is cheap.
	Ready() bool
	// Await waits a moment until requests of the session with that key may begin. Otherwise the error is
	// ErrUnavailable.
	Await(ctx context.Context, key string) error
}

// Store stores records for several owners. Each value is the view of one owner.
type Store interface {
	Keeper
	// Find returns the record or ErrNotFound.
	Find(ctx context.Context, key string) (Held, error)
	// Take makes this owner the owner of a session that Find returned as seen. The error is a *Moved if the session
	// changed since, and ErrNotFound if it is gone.
	Take(ctx context.Context, seen Held) (Held, error)
	// Keep extends the life of the records. It returns those that this owner does not own any more.
	Keep(ctx context.Context, all []Held) (fenced []Held, err error)
}

// NewID returns an id for a new session: the tag of the instance, if it has one, and 130 random bits. The tag
// is a hint which instance has the session, and no proof.
func NewID(tag string) string {
	if tag == "" {
		return rand.Text()
	}
	return tag + "-" + rand.Text()
}

// TagLength is the length of a tag.
const TagLength = 6

// Tag returns the tag in an id that NewID made, or "".
func Tag(id string) string {
	if len(id) > TagLength && id[TagLength] == '-' {
		return id[:TagLength]
	}
	return ""
}

// Key returns the key under which a session with that id is stored. The key does not reveal the id.
func Key(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

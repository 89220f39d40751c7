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

// Record is one session.
type Record struct {
	Key       string      `json:"-"` // from the id, by Key: the id itself is a secret
	Server    string      // empty means the aggregate of all servers
	Principal string      // of the client; empty without access rules
	Revision  string      // of the protocol
	Params    []byte      // of initialize, raw JSON
	Header    http.Header `json:",omitempty"` // forwarded headers of the client
	Level     []byte      `json:",omitempty"` // params of the last logging/setLevel, raw JSON
	Subs      []string    `json:",omitempty"` // URIs of the resources that the client subscribes to
	// Greeting is the declaration of the server that the client got: protocolVersion and
	// capabilities, a raw JSON object. It is empty until the handshake has succeeded.
	Greeting []byte `json:",omitempty"`
	// Carry holds the state of each connection that another instance can continue, by server: see
	// bridge.Resumable.
	Carry map[string][]byte `json:",omitempty"`
	// Bound means that the session ends with the process that began it, such as one over HTTP+SSE,
	// which ends with its stream.
	Bound bool `json:"-"`
}

// Held is a record, and the right to write it.
type Held struct {
	Record
	Owner string // which instance; empty when it was released
	Epoch int64  // rises with each change of the owner
}

// Errors of a Store.
var (
	ErrNotFound = errors.New("no such session")
	ErrFull     = errors.New("too many sessions")
	// ErrFenced: another instance has the session by now.
	ErrFenced = errors.New("another instance has the session")
	// ErrUnavailable: the store is unreachable. It is unknown whether the request had an effect.
	ErrUnavailable = errors.New("the store of sessions is out of reach")
)

// Moved is the error of a Put or a Take that another owner's Put or Take preceded.
type Moved struct {
	Owner string // the owner of the session; empty if it was released
	Epoch int64  // of that owner
}

// Error implements error.
func (*Moved) Error() string { return ErrFenced.Error() }

// Unwrap makes a Moved a kind of ErrFenced.
func (*Moved) Unwrap() error { return ErrFenced }

// Keeper is the part of a Store that the owner of sessions uses. Methods may be called
// concurrently.
type Keeper interface {
	// Put adds a record for this owner and returns it with the right to write it. Epoch is the last
	// known one, and 0 for a new session. Put fails with ErrFull at the limit, and with *Moved if
	// there is a record already.
	Put(ctx context.Context, h Held) (Held, error)
	// Save writes the record again. It fails with ErrFenced.
	Save(ctx context.Context, h Held) error
	// Release writes the record without an owner: the next Take gets it. It fails with ErrFenced.
	Release(ctx context.Context, h Held) error
	// Delete removes the record. It is no error if there is none, or if another owner has it.
	Delete(ctx context.Context, h Held) error
}

// Leased is a Keeper whose sessions another instance may take over.
type Leased interface {
	Keeper
	// Ready reports whether requests of any session here may begin. It is cheap.
	Ready() bool
	// Await waits, for a moment at most, until requests may begin. The error is ErrUnavailable.
	Await(ctx context.Context, key string) error
}

// Store stores records for several owners; a value of it is the view of one.
type Store interface {
	Keeper
	// Find returns the record or ErrNotFound.
	Find(ctx context.Context, key string) (Held, error)
	// Take makes this owner the owner of a session that Find returned as seen. It fails with *Moved
	// if the session has changed since, and with ErrNotFound.
	Take(ctx context.Context, seen Held) (Held, error)
	// Keep extends the life of records. It returns the records that this owner has lost.
	Keep(ctx context.Context, all []Held) (fenced []Held, err error)
}

// NewID returns an id for a new session: 130 random bits, after the tag of the instance, if
// it has one. The tag is a hint to the instance of the session, and no proof.
func NewID(tag string) string {
	if tag == "" {
		return rand.Text()
	}
	return tag + "-" + rand.Text()
}

// TagLength is the length of a tag.
const TagLength = 6

// Tag returns the tag of an id of NewID, or "".
func Tag(id string) string {
	if len(id) > TagLength && id[TagLength] == '-' {
		return id[:TagLength]
	}
	return ""
}

// Key returns the key under which a session is stored. It does not reveal the id.
func Key(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// Package disk stores a front's logins in a folder, for one instance. The logins survive a restart.
package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"
)

const (
	name = "front.db"
	// maxKept bounds the stored values of each kind.
	maxKept = 20_000
	// lockWait is how long Open waits for another process to release the folder, such as a process that is stopping.
	lockWait   = 10 * time.Second
	sweepEvery = time.Hour
)

// Disk is a front.Store in a folder. Its first use opens the database. The caller closes it.
type Disk struct {
	dir    string
	max    uint64
	wait   time.Duration
	opened chan struct{} // closed when db is set

	mu     sync.Mutex // guards db and closed
	db     *bbolt.DB
	closed bool
	swept  time.Time // guarded by the database, which has only one writer at a time
}

// New returns a Disk in a folder, which need not exist yet.
func New(dir string) *Disk {
	return &Disk{
		dir:    dir,
		max:    maxKept,
		wait:   lockWait,
		opened: make(chan struct{}),
	}
}

// Opened returns a channel that is closed once the database is open.
func (d *Disk) Opened() <-chan struct{} { return d.opened }

// kindOf returns the bucket of a key, which is the part before the key's colon.
func kindOf(key string) []byte {
	kind, _, _ := strings.Cut(key, ":")
	return []byte(kind)
}

// Open opens the database unless it is open. The error suggests a fix.
func (d *Disk) Open() error {
	_, err := d.open()
	return err
}

func (d *Disk) open() (*bbolt.DB, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, errors.New("the bridge is stopping")
	case d.db != nil:
		return d.db, nil
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, fmt.Errorf("state_dir cannot be created: %w", err)
	}
	db, err := bbolt.Open(filepath.Join(d.dir, name), 0o600, &bbolt.Options{Timeout: d.wait})
	switch {
	case errors.Is(err, boltErrors.ErrTimeout):
		return nil, errors.New("another process uses state_dir: give each its own folder, or let instances share logins by a cluster")
	case err != nil:
		return nil, fmt.Errorf("%s in state_dir cannot be used: %w (if it is damaged, remove it; users must then sign in again)", name, err)
	}
	if err := db.Update(d.sweep); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("%s in state_dir cannot be written: %w", name, err)
	}
	d.db = db
	close(d.opened)
	return db, nil
}

func (d *Disk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.db == nil {
		return nil
	}
	return d.db.Close()
}

// alive returns the value without its expiry time, or nil if the value has expired.
func alive(raw []byte, now time.Time) []byte {
	if len(raw) < 8 || ends(raw) <= now.UnixMilli() {
		return nil
	}
	return raw[8:]
}

func ends(raw []byte) int64 { return int64(binary.BigEndian.Uint64(raw)) }

// Get implements front.Store.
func (d *Disk) Get(_ context.Context, key string) (value []byte, err error) {
	db, err := d.open()
	if err != nil {
		return nil, err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(kindOf(key)); b != nil {
			value = bytes.Clone(alive(b.Get([]byte(key)), time.Now()))
		}
		return nil
	})
	return value, err
}

// Swap implements front.Store.
func (d *Disk) Swap(_ context.Context, key string, old, value []byte, life time.Duration) (done bool, err error) {
	db, err := d.open()
	if err != nil {
		return false, err
	}
	now := time.Now()
	err = db.Update(func(tx *bbolt.Tx) error {
		done = false
		b, err := tx.CreateBucketIfNotExists(kindOf(key))
		if err != nil {
			return err
		}
		raw := b.Get([]byte(key))
		is := alive(raw, now)
		switch {
		case value != nil && bytes.Equal(is, value):
			done = true
			return nil
		case !bytes.Equal(is, old):
			return nil
		}
		done = true
		if value == nil {
			return b.Delete([]byte(key))
		}
		if raw == nil {
			if err := d.room(tx, b, now); err != nil {
				return err
			}
		}
		text := binary.BigEndian.AppendUint64(nil, uint64(now.Add(life).UnixMilli()))
		return b.Put([]byte(key), append(text, value...))
	})
	return done && err == nil, err
}

const endedKind = "ended"

// End implements front.Store.
func (d *Disk) End(ctx context.Context, id string, life time.Duration) error {
	_, err := d.Swap(ctx, endedKind+":"+id, nil, []byte{1}, life)
	return err
}

// Ended implements front.Store. Only one instance uses the folder, so only the first call after a start has anything to
// return.
func (d *Disk) Ended(_ context.Context, mark string) (ids []string, next string, err error) {
	if mark != "" {
		return nil, mark, nil
	}
	db, err := d.open()
	if err != nil {
		return nil, "", err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(endedKind))
		if b == nil {
			return nil
		}
		now := time.Now()
		return b.ForEach(func(key, raw []byte) error {
			if alive(raw, now) != nil {
				ids = append(ids, strings.TrimPrefix(string(key), endedKind+":"))
			}
			return nil
		})
	})
	return ids, "known", err
}

// room makes room for one more value. It removes expired values first, then the value that expires next, which has been
// unused for longest.
func (d *Disk) room(tx *bbolt.Tx, b *bbolt.Bucket, now time.Time) error {
	if now.Sub(d.swept) > sweepEvery {
		if err := d.sweep(tx); err != nil {
			return err
		}
	}
	if n := b.Sequence(); n < d.max {
		return b.SetSequence(n + 1)
	}
	if err := d.sweep(tx); err != nil {
		return err
	}
	if n := b.Sequence(); n < d.max {
		return b.SetSequence(n + 1)
	}
	var first []byte
	least := int64(0)
	err := b.ForEach(func(key, raw []byte) error {
		if at := ends(raw); first == nil || at < least {
			first, least = bytes.Clone(key), at
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.Delete(first) // the count stays the same: one value replaces another
}

// sweep removes expired values, and stores the number of the other values as the sequence of their bucket. Between
// sweeps, the sequence is an upper bound of the number of values.
func (d *Disk) sweep(tx *bbolt.Tx) error {
	now := time.Now()
	d.swept = now
	return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
		var over [][]byte
		left := uint64(0)
		err := b.ForEach(func(key, raw []byte) error {
			if alive(raw, now) == nil {
				over = append(over, bytes.Clone(key))
			} else {
				left++
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, key := range over {
			if err := b.Delete(key); err != nil {
				return err
			}
		}
		return b.SetSequence(left)
	})
}

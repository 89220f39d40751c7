package document

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/files"
)

// maxKeptFile bounds the file with a saved document, in bytes: the largest document in base64 fits.
const maxKeptFile = maxDocument * 3 / 2

// kept is the last good document of a URL, saved on disk with all texts that it refers to.
type kept struct {
	Read  time.Time         `json:"read"`
	Texts map[string][]byte `json:"texts"` // by hashes of their URLs, since URLs may contain secrets
	// Outside has the hashes of URLs that were read at a public address.
	Outside map[string]bool `json:"outside,omitempty"`

	own *fetcher // reads missing texts
}

var _ openapi.Fetcher = (*kept)(nil)

// Fetch implements openapi.Fetcher.
func (k *kept) Fetch(ctx context.Context, address string) ([]byte, error) {
	if text, ok := k.Texts[sumOf(address)]; ok {
		return text, nil
	}
	return k.own.Fetch(ctx, address)
}

// Public implements openapi.Fetcher.
func (k *kept) Public(address string) bool { return k.Outside[sumOf(address)] || k.own.Public(address) }

// recorder records the texts that a fetcher reads.
type recorder struct {
	*fetcher
	texts   map[string][]byte // by hashes of their URLs
	outside map[string]bool   // as in kept
	failed  []string          // hashes of unreadable URLs
	limit   time.Duration     // bounds the fetch of the document itself; fetchLimit if 0
}

// Patience bounds the fetch of a document if a saved document can replace it.
const Patience = 4 * time.Second

// Fetch implements openapi.Fetcher.
func (r *recorder) Fetch(ctx context.Context, address string) ([]byte, error) {
	if r.limit > 0 && address == r.main {
		limited, cancel := context.WithTimeout(ctx, r.limit)
		defer cancel()
		ctx = limited
	}
	text, err := r.fetcher.Fetch(ctx, address)
	switch sum := sumOf(address); {
	case err != nil:
		r.failed = append(r.failed, sum)
	case address != r.o.Catalog:
		r.texts[sum] = text
		if r.Public(address) {
			r.outside[sum] = true
		}
	}
	return text, err
}

func sumOf(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:])
}

// keptPath returns the path of the saved document. It is empty if the document is not to be saved.
func (o *Options) keptPath() string {
	if o.KeepDir == "" || !address.IsHTTP(o.Location) {
		return ""
	}
	return filepath.Join(o.KeepDir, sumOf(o.Location)+".json")
}

// readKept reads the saved document. It returns nil without an error if none is saved.
func (o *Options) readKept(own *fetcher) (*kept, error) {
	path := o.keptPath()
	if path == "" {
		return nil, nil
	}
	data, err := files.Read(path, maxKeptFile+1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	k := &kept{own: own}
	if err := json.Unmarshal(data, k); err != nil || len(data) > maxKeptFile || k.Texts[sumOf(o.Location)] == nil {
		return nil, fmt.Errorf("%s is damaged: remove it", path)
	}
	return k, nil
}

// keepTexts saves the document on disk. Readers of the file never see a part of it. If a text could not
// be read now, but is saved, keepTexts also keeps the other saved texts, since the unread text may
// refer to them.
func (o *Options) keepTexts(read *recorder) error {
	path := o.keptPath()
	if path == "" {
		return nil
	}
	texts, outside := read.texts, read.outside
	if len(read.failed) > 0 {
		old, _ := o.readKept(nil) // a damaged file is replaced
		if old != nil && slices.ContainsFunc(read.failed, func(sum string) bool { return old.Texts[sum] != nil }) {
			maps.Copy(old.Texts, texts)
			texts = old.Texts
			maps.Copy(outside, old.Outside)
		}
	}
	data, err := json.Marshal(kept{
		Read:    time.Now().UTC().Truncate(time.Second),
		Texts:   texts,
		Outside: outside,
	})
	if err != nil {
		return err
	}
	if len(data) > maxKeptFile {
		return fmt.Errorf("it would take more than %d bytes", maxKeptFile)
	}
	if err := os.MkdirAll(o.KeepDir, 0o700); err != nil {
		return err
	}
	return files.Write(path, data)
}

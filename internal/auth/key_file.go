package auth

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/mcp-bridge/bridge/internal/files"
)

// keyFile is a file with a key.
type keyFile struct {
	path string
	info os.FileInfo // of the file when it was last read; nil if that failed
	at   time.Time   // when the file was last read
	key  string
}

// maxKeyFile bounds the size of a key file, in bytes.
const maxKeyFile = 16 << 10

// refresh checks the files if a check is due. One request does so; meanwhile others use the known keys.
func (k *Keys) refresh() {
	due := k.nextCheck.Load()
	if due == 0 || time.Now().UnixNano() < due || !k.mu.TryLock() {
		return
	}
	defer k.mu.Unlock()
	if k.nextCheck.Load() == due {
		k.readNow()
	}
}

// readNow checks the files, and sets the time of the next check. The caller holds k.mu.
func (k *Keys) readNow() {
	k.readFiles()
	k.nextCheck.Store(time.Now().Add(checkEvery).UnixNano())
}

// readFiles reads changed files, and publishes the keys. If two principals have the same key, a key in the
// configuration wins over a key in a file. So nobody can take over a principal's name by writing a file. The caller
// holds k.mu.
func (k *Keys) readFiles() {
	all := make([]known, len(k.keys))
	owner := map[[sha256.Size]byte]string{}
	take := func(i int, token string, fault error) {
		name, sum := k.keys[i].Principal, k.sum(token)
		all[i].principal = name
		if fault == nil {
			if err := Check(token); err != nil {
				fault = fmt.Errorf("its key %w", err)
			}
		}
		if other, taken := owner[sum]; taken && fault == nil && other != name {
			fault = fmt.Errorf("its key is also the key of %s: use different keys", other)
		}
		if fault == nil {
			all[i].sum, all[i].usable = sum, 1
			owner[sum] = name
		}
		k.logFault(i, fault)
	}
	for i, key := range k.keys {
		if k.files[i] == nil {
			take(i, key.Token, nil)
		}
	}
	for i, f := range k.files {
		if f != nil {
			token, err := f.read()
			take(i, token, err)
		}
	}
	var before map[string]bool
	if old := k.known.Load(); old != nil {
		before = usablePrincipals(*old)
	}
	now := usablePrincipals(all)
	for name := range now {
		if before != nil && !before[name] {
			k.onChange(name, true)
		}
	}
	k.known.Store(&all)
	for name := range before {
		if !now[name] {
			k.onChange(name, false)
		}
	}
}

// usablePrincipals returns the principals with a usable key.
func usablePrincipals(all []known) map[string]bool {
	names := map[string]bool{}
	for i := range all {
		if all[i].usable == 1 {
			names[all[i].principal] = true
		}
	}
	return names
}

// logFault logs a new fault of a key, or that the key has no fault any more.
func (k *Keys) logFault(i int, fault error) {
	text := ""
	if fault != nil {
		text = fault.Error()
	}
	if k.logged[i] == text {
		return
	}
	k.logged[i] = text
	log := k.log.With("principal", k.keys[i].Principal)
	if k.files[i] != nil {
		log = log.With("file", k.files[i].path)
	}
	if fault != nil {
		log.Warn("a caller's key cannot be used: requests with it are refused", "err", text)
		return
	}
	log.Info("a caller's key can be used again")
}

// read returns the key in the file. It reads a file again only if the file has changed, or was very young when it was
// read: a change soon after that may have left the same time.
func (k *keyFile) read() (string, error) {
	info, err := os.Stat(k.path)
	switch {
	case err != nil:
		k.info = nil
		return "", files.Reason(err)
	case k.info != nil && os.SameFile(info, k.info) && info.Size() == k.info.Size() && info.ModTime().Equal(k.info.ModTime()) &&
		k.at.Sub(info.ModTime()).Abs() > checkEvery:
		return k.key, nil
	}
	key, err := Read(k.path)
	k.key, k.info, k.at = key, info, time.Now()
	if err != nil {
		k.info = nil
		return "", err
	}
	return key, nil
}

// Read returns the key in a file, without a final line break. The error does not name the file.
func Read(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", files.Reason(err)
	case !info.Mode().IsRegular(): // to read a pipe could block forever
		return "", errors.New("is not a file")
	}
	data, err := files.Read(path, maxKeyFile+1)
	switch {
	case err != nil:
		return "", files.Reason(err)
	case len(data) > maxKeyFile:
		return "", errors.New("is larger than 16 KiB: it must hold a key and nothing else")
	}
	key := strings.TrimRight(string(data), "\r\n")
	if key == "" {
		return "", errors.New("is empty")
	}
	return key, nil
}

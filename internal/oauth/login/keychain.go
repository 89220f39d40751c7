package login

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/zalando/go-keyring"

	"github.com/mcp-bridge/bridge/internal/seal"
)

// inKeychain and inFile are the values of the variable MCP_BRIDGE_LOGINS.
const (
	inKeychain = "keychain" // seal logins; without a keychain, fail
	inFile     = "file"     // write logins unencrypted
)

const (
	keychainService = "mcp-bridge"
	// promptWait is how long the first caller waits for the keychain, which may show a prompt. A program on a desktop
	// may have started the bridge while the person is away.
	promptWait = 10 * time.Second
	// askAgain is how long after a failure the keychain is not asked again.
	askAgain = 30 * time.Second
)

// keychain returns the key that seals logins. The key is in the operating system's keychain, which holds only short
// texts. The files hold the logins.
type keychain struct {
	user string // names the folder of logins
	dir  string
	get  func(service, user string) (string, error) // keyring.Get

	mu     sync.Mutex    // guards the rest
	asked  chan struct{} // closed when the running question ends; nil if none is running
	slow   bool          // a caller has waited for the running question in vain
	key    *seal.Key     // nil until it is known
	err    error         // of the last question
	failed time.Time     // when err came
}

var errPrompt = errors.New("the keychain does not answer: unlock it")

// hasKeychain reports whether the system may have a keychain. On Linux, the keychain is a service on the session bus.
// Without a bus, the library would try to start one.
func hasKeychain() bool {
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" || os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return true
	}
	_, err := os.Stat(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "bus"))
	return os.Getenv("XDG_RUNTIME_DIR") != "" && err == nil
}

// forget returns the known key, and makes open ask the keychain again, because another process may have replaced the
// key.
func (k *keychain) forget() *seal.Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.key
	if old != nil {
		k.key, k.err = nil, nil
	}
	return old
}

// open returns the key. If there is no key and create is true, open makes a key.
func (k *keychain) open(create bool) (*seal.Key, error) {
	if !hasKeychain() {
		return nil, errors.New("there is no keychain")
	}
	k.mu.Lock()
	switch none := errors.Is(k.err, keyring.ErrNotFound); {
	case k.key != nil, k.asked == nil && k.err != nil && time.Since(k.failed) < askAgain && !(create && none):
		defer k.mu.Unlock()
		return k.key, k.err
	case k.asked == nil:
		k.asked = make(chan struct{})
		go k.ask(create, k.asked) // nothing can stop a prompt, which ends with the process at the latest
	}
	asked, wait := k.asked, promptWait
	if k.slow {
		wait = 0
	}
	k.mu.Unlock()
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-asked:
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.key, k.err
	case <-late.C:
		k.mu.Lock()
		defer k.mu.Unlock()
		k.slow = k.asked == asked
		return nil, errPrompt
	}
}

// ask gets the key from the keychain, which may prompt the person without a time limit. If there is no key and create
// is true, ask makes a key. At its end, ask closes asked.
func (k *keychain) ask(create bool, asked chan struct{}) {
	text, err := k.get(keychainService, k.user)
	if create && errors.Is(err, keyring.ErrNotFound) {
		text, err = k.make()
	}
	var key *seal.Key
	if err == nil {
		key, err = seal.New(text)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.key, k.err, k.failed, k.asked, k.slow = key, err, time.Now(), nil, false
	close(asked)
}

// make stores a new key. Only one process at a time does so, because a second key would replace the first.
func (k *keychain) make() (string, error) {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), promptWait)
	defer cancel()
	l := flock.New(filepath.Join(k.dir, "keychain.lock"), flock.SetPermissions(0o600))
	if ok, err := l.TryLockContext(ctx, 100*time.Millisecond); err != nil || !ok {
		return "", errors.Join(context.Cause(ctx), err)
	}
	defer func() { _ = l.Unlock() }()
	text, err := k.get(keychainService, k.user)
	if !errors.Is(err, keyring.ErrNotFound) {
		return text, err
	}
	text = rand.Text() + rand.Text()
	return text, keyring.Set(keychainService, k.user, text)
}

// sealed is a file with a sealed login or attempt. Older versions do not read its format.
type sealed struct {
	Format int    `json:"format"`
	Sealed string `json:"sealed"`
}

const sealedFormat = 2

// close seals the content of a file. Content that no keychain can seal stays unencrypted, unless the user requires the
// keychain.
func (s *Store) close(name string, data []byte) ([]byte, error) {
	if s.chain == nil {
		return data, nil
	}
	old := s.chain.forget()
	key, err := s.chain.open(true)
	switch {
	case err != nil && old != nil: // the keychain was locked meanwhile
		key = old
	case err != nil && s.required:
		return nil, fmt.Errorf("the keychain cannot be used, and MCP_BRIDGE_LOGINS requires it: %w", err)
	case err != nil:
		s.warnOnce.Do(func() {
			s.warn("logins are written to files in clear, which only you can read: the keychain cannot be used", err)
		})
		return data, nil
	}
	return json.Marshal(sealed{sealedFormat, key.Seal("login "+filepath.Base(name), data)})
}

// unseal returns the content of a file, which may be unencrypted.
func (s *Store) unseal(name string, data []byte) ([]byte, error) {
	var in sealed
	if json.Unmarshal(data, &in) != nil || in.Format != sealedFormat || in.Sealed == "" {
		return data, nil
	}
	if s.chain == nil {
		return nil, fmt.Errorf("%s: it is sealed, and MCP_BRIDGE_LOGINS=file forbids the keychain: %w", name, errBroken)
	}
	key, err := s.chain.open(false)
	switch {
	case errors.Is(err, keyring.ErrNotFound):
		return nil, fmt.Errorf("%s: its key is not in the keychain: %w", name, errBroken)
	case err != nil:
		return nil, fmt.Errorf("%s is sealed with a key in the keychain, which cannot be used (MCP_BRIDGE_LOGINS=file signs in without it): %w", name, err)
	}
	if data, err = key.Open("login "+filepath.Base(name), in.Sealed); err != nil {
		s.chain.forget()
		if key, err = s.chain.open(false); err == nil {
			data, err = key.Open("login "+filepath.Base(name), in.Sealed)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: another key has sealed it: %w", name, errBroken)
	}
	return data, nil
}

// ready asks the keychain for the key if the file of a login needs it, because callers of Read hold locks.
func (s *Store) ready(key string) {
	if s.chain != nil {
		_, _ = s.get(s.file(key)) // Read returns the error
	}
}

// RemoveKey removes the key from the keychain.
func (s *Store) RemoveKey() error {
	if s.chain == nil || !hasKeychain() {
		return nil
	}
	switch _, err := s.chain.open(false); {
	case errors.Is(err, keyring.ErrNotFound):
		return nil
	case err != nil && !s.required: // where no keychain can be used, no login is sealed
		return nil
	case err != nil:
		return fmt.Errorf("the key cannot be removed from the keychain: %w", err)
	}
	if err := keyring.Delete(keychainService, s.chain.user); err != nil && !errors.Is(err, keyring.ErrNotFound) {
		return fmt.Errorf("the key cannot be removed from the keychain: %w", err)
	}
	return nil
}

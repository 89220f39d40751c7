package login

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/zalando/go-keyring"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// format is the version of the file format. It changes when older programs cannot read the new files (I-251).
const format = 1

// Login is a stored login.
type Login struct {
	Format int `json:"format"`
	// Server is the address of the server. Resource is the resource parameter, or empty if there is none.
	Server   string `json:"server"`
	Resource string `json:"resource,omitempty"`
	// Issuer is the authorization server, and Client is the bridge's client there.
	Issuer discovery.Issuer `json:"issuer"`
	Client Client           `json:"client"`
	// Access is the access token, and Refresh is the refresh token. Each may be empty.
	Access  string `json:"access,omitempty"`
	Refresh string `json:"refresh,omitempty"`
	// Obtained is when Access was issued, and Until is when it expires. Zero means unknown.
	Obtained time.Time `json:"obtained,omitzero"`
	Until    time.Time `json:"until,omitzero"`
	// Renewed means that Access came from a renewal, not from a sign-in.
	Renewed bool `json:"renewed,omitempty"`
	// Asked are the requested scopes, and Granted are the granted scopes.
	Asked   []string `json:"asked,omitempty"`
	Granted []string `json:"granted,omitempty"`
}

// Client is the bridge as a client of an authorization server.
type Client struct {
	ID       string `json:"id"`
	Secret   string `json:"secret,omitempty"`
	Method   string `json:"method,omitempty"`
	Redirect string `json:"redirect,omitempty"`
	// Registered means that the bridge has registered the client. Ends is when the client's secret expires.
	Registered bool      `json:"registered,omitempty"`
	Ends       time.Time `json:"ends,omitzero"`
}

func (c *Client) grant(s *oauth.Client) *discovery.Client {
	if !c.Registered && s != nil && s.KeyFile != "" {
		return &discovery.Client{ID: c.ID, Key: assertion.Key{
			File:      s.KeyFile,
			ID:        s.KeyID,
			Algorithm: s.Algorithm,
		}}
	}
	secret := c.Secret
	if !c.Registered && s != nil {
		secret = s.Secret // no login stores the configured secret
	}
	return &discovery.Client{
		ID:     c.ID,
		Secret: secret,
		Method: c.Method,
	}
}

// access returns the access token, or "" without a login.
func (l *Login) access() string {
	if l == nil {
		return ""
	}
	return l.Access
}

// good reports whether the access token can be used: the token is not in its last renewBefore, or in the last fifth of
// its life if that is shorter.
func (l *Login) good(now time.Time) bool {
	if l == nil || l.Access == "" {
		return false
	}
	life := l.Until.Sub(l.Obtained)
	return l.Until.IsZero() || now.Before(l.Until.Add(-min(renewBefore, life/5)))
}

// fresh reports whether the access token is new. If the clock was set back, a token may be from the future; such a
// token is not new.
func (l *Login) fresh(now time.Time) bool {
	age := now.Round(0).Sub(l.Obtained)
	return age >= 0 && age < newFor
}

// dropTokens removes the tokens, but keeps the client.
func (l *Login) dropTokens() { l.Access, l.Refresh, l.Until = "", "", time.Time{} }

// Store stores logins, each in a file that only its owner can read (I-250). If there is a keychain, the files are
// sealed (I-259).
type Store struct {
	dir      string
	write    func(path string, data []byte) error
	chain    *keychain // seals the files; nil leaves them unencrypted
	required bool      // files must be sealed
	warnOnce sync.Once
	warn     func(text string, err error)
}

// Open returns the store in a folder. Writing creates the folder.
func Open(dir string) *Store { return &Store{dir: dir, write: files.Write} }

// OpenOwn returns the user's own store. If there is a keychain, its key seals the files. A folder that
// MCP_BRIDGE_STATE_DIR names may belong to a service, which has no keychain; the files in such a folder are unencrypted
// unless MCP_BRIDGE_LOGINS requires the keychain. If logins cannot be sealed, log gets one line.
func OpenOwn(log *slog.Logger) (*Store, error) {
	at, err := dir()
	if err != nil {
		return nil, fmt.Errorf("the folder for logins is unknown: %w", err)
	}
	s := Open(at)
	how := os.Getenv("MCP_BRIDGE_LOGINS")
	if how != "" && how != inKeychain && how != inFile {
		return nil, fmt.Errorf("MCP_BRIDGE_LOGINS is %q: it must be %s or %s", how, inKeychain, inFile)
	}
	if how == inKeychain || how == "" && os.Getenv("MCP_BRIDGE_STATE_DIR") == "" {
		s.chain, s.required = &keychain{
			user: "logins in " + at,
			dir:  at,
			get:  keyring.Get,
		}, how == inKeychain
		s.warn = func(text string, err error) { log.Warn(text, "err", err) }
	}
	if _, err := s.Keys(); err != nil {
		return nil, fmt.Errorf("the folder of logins cannot be read: %w", err)
	}
	return s, nil
}

// dir returns the folder of the user's logins.
func dir() (string, error) {
	if d := os.Getenv("MCP_BRIDGE_STATE_DIR"); d != "" {
		return filepath.Join(d, "logins"), nil
	}
	var base string
	switch runtime.GOOS {
	case "windows", "darwin":
		d, err := os.UserConfigDir()
		if err != nil {
			return "", err
		}
		base = d
		if local := os.Getenv("LocalAppData"); runtime.GOOS == "windows" && local != "" {
			base = local
		}
	default:
		if base = os.Getenv("XDG_STATE_HOME"); !filepath.IsAbs(base) {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", err
			}
			base = filepath.Join(home, ".local", "state")
		}
	}
	return filepath.Join(base, "mcp-bridge", "logins"), nil
}

// Key returns the key of the login for a server. Each client and each resource has its own key (I-252).
func Key(server string, s *oauth.Settings) string {
	id := ""
	if s.Client != nil {
		id = s.Client.ID
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{server, s.Issuer, id, s.Resource}, "\x00")))
	return hex.EncodeToString(sum[:16])
}

func (s *Store) file(key string) string { return filepath.Join(s.dir, key+".json") }

// Lock locks a login against all other processes, until unlock is called or the process ends (I-253 to I-255). It waits
// for the lock.
func (s *Store) Lock(ctx context.Context, key string) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	l := flock.New(filepath.Join(s.dir, key+".lock"), flock.SetPermissions(0o600))
	if ok, err := l.TryLockContext(ctx, 100*time.Millisecond); err != nil || !ok {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return func() { _ = l.Unlock() }, nil
}

// errBroken means that a file does not hold a login, or holds a login of a newer version.
var errBroken = errors.New("it is no login that this version can read")

// Read returns a login, or nil if there is none.
func (s *Store) Read(key string) (*Login, error) {
	name := s.file(key)
	data, err := s.get(name)
	if data == nil {
		return nil, err
	}
	l := &Login{}
	if json.Unmarshal(data, l) != nil || l.Format != format || l.Server == "" {
		return nil, fmt.Errorf("%s: %w", name, errBroken)
	}
	return l, nil
}

// get reads a file that only its owner can read. If there is no file, get returns nil.
func (s *Store) get(name string) ([]byte, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s must be a regular file: remove it", name)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others on this machine can read %s, which holds a login: run chmod 600 %[1]s, or remove it and sign in again", name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return s.unseal(name, data)
}

// Write stores a login. If it fails, the old file stays.
func (s *Store) Write(key string, l *Login) error {
	l.Format = format
	return s.put(s.file(key), l)
}

// put writes v as JSON to a file that only its owner can read.
func (s *Store) put(name string, v any) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if data, err = s.close(name, data); err != nil {
		return err
	}
	return s.write(name, data)
}

func (s *Store) Remove(key string) error {
	if err := os.Remove(s.file(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Keys returns the keys of all logins.
func (s *Store) Keys() ([]string, error) { return s.keys(".json") }

// keys returns the names of the files with a suffix, without that suffix.
func (s *Store) keys(end string) ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if key, ok := strings.CutSuffix(e.Name(), end); ok && !strings.HasPrefix(key, ".") {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return all, nil
}

package login

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/mcp-bridge/bridge/internal/auth/assertion"
	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/oauth"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

// format is the number of the layout of a file. A layout that older programs cannot read
// has another one (I-251).
const format = 1

// Login is what is kept of a sign-in.
type Login struct {
	Format int `json:"format"`
	// Server is its address, and Resource what tokens are asked for; empty if that is left out.
	Server   string `json:"server"`
	Resource string `json:"resource,omitempty"`
	// Issuer is who gives the tokens, and Client who asks for them there.
	Issuer discovery.Issuer `json:"issuer"`
	Client Client           `json:"client"`
	// Access is the token, and Refresh what renews it; empty without one.
	Access  string `json:"access,omitempty"`
	Refresh string `json:"refresh,omitempty"`
	// Obtained is when the token came, and Until when it ends; zero if that is not known.
	Obtained time.Time `json:"obtained,omitzero"`
	Until    time.Time `json:"until,omitzero"`
	// Renewed says that it came by a renewal, not by a sign-in.
	Renewed bool `json:"renewed,omitempty"`
	// Asked are the scopes that were asked for, and Granted those that were granted.
	Asked   []string `json:"asked,omitempty"`
	Granted []string `json:"granted,omitempty"`
}

// Client is who asks an authorization server for tokens.
type Client struct {
	ID     string `json:"id"`
	Secret string `json:"secret,omitempty"`
	Method string `json:"method,omitempty"`
	// Redirect is where the authorization server sends the browser back to.
	Redirect string `json:"redirect,omitempty"`
	// Registered says that the bridge has registered it; Ends is when its secret ends.
	Registered bool      `json:"registered,omitempty"`
	Ends       time.Time `json:"ends,omitzero"`
}

func (c *Client) grant(s *oauth.Client) *discovery.Client {
	if !c.Registered && s != nil && s.KeyFile != "" {
		return &discovery.Client{ID: c.ID, Key: assertion.Key{File: s.KeyFile, ID: s.KeyID, Algorithm: s.Algorithm}}
	}
	secret := c.Secret
	if !c.Registered && s != nil {
		secret = s.Secret // which is in nobody's file but the operator's
	}
	return &discovery.Client{ID: c.ID, Secret: secret, Method: c.Method}
}

// access returns the token; empty without a login.
func (l *Login) access() string {
	if l == nil {
		return ""
	}
	return l.Access
}

// good reports whether the token can be used.
func (l *Login) good(now time.Time) bool {
	if l == nil || l.Access == "" {
		return false
	}
	life := l.Until.Sub(l.Obtained)
	return l.Until.IsZero() || now.Before(l.Until.Add(-min(margin, life/5)))
}

// fresh reports whether the token has only just come. A clock that was set back says nothing.
func (l *Login) fresh(now time.Time) bool {
	age := now.Round(0).Sub(l.Obtained)
	return age >= 0 && age < newFor
}

// end forgets the tokens, and keeps the client.
func (l *Login) end() { l.Access, l.Refresh, l.Until = "", "", time.Time{} }

// Store keeps logins: a file for each, which nobody else can read (I-250).
type Store struct {
	dir   string
	write func(path string, data []byte) error
}

// Open returns the store in a folder, which is made when something is kept.
func Open(dir string) *Store { return &Store{dir: dir, write: files.Write} }

// OpenOwn returns the store of the user. The error says why there can be none.
func OpenOwn() (*Store, error) {
	at, err := dir()
	if err != nil {
		return nil, fmt.Errorf("there is no folder for logins: %w", err)
	}
	s := Open(at)
	if _, err := s.Keys(); err != nil {
		return nil, fmt.Errorf("the folder of logins cannot be read: %w", err)
	}
	return s, nil
}

// dir returns the folder in which the user's logins are kept.
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

// Key returns the name under which the login for a server is kept: another one for another
// client, or another resource (I-252).
func Key(server string, s *oauth.Settings) string {
	id := ""
	if s.Client != nil {
		id = s.Client.ID
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{server, s.Issuer, id, s.Resource}, "\x00")))
	return hex.EncodeToString(sum[:16])
}

func (s *Store) file(key string) string { return filepath.Join(s.dir, key+".json") }

// Lock keeps all other processes away from a login until unlock is called, or the process
// ends (I-253 to I-255). It waits for those before it.
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

// errBroken says that a file holds no login: it was not written by this program, or by a
// newer one.
var errBroken = errors.New("it holds no login that this version can read")

// Read returns a login; nil if there is none.
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

// get reads a file that nobody else can read; nil if there is none.
func (s *Store) get(name string) ([]byte, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file of its own: remove it", name)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others on this machine can read %s, in which a login is: run chmod 600 %[1]s, or remove it and sign in again", name)
	}
	return os.ReadFile(name)
}

// Write keeps a login. It is there whole, or as it was before.
func (s *Store) Write(key string, l *Login) error {
	l.Format = format
	return s.put(s.file(key), l)
}

// put writes a file that nobody else can read.
func (s *Store) put(name string, v any) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return s.write(name, data)
}

// Remove forgets a login.
func (s *Store) Remove(key string) error {
	if err := os.Remove(s.file(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Keys returns the names of all logins.
func (s *Store) Keys() ([]string, error) { return s.keys(".json") }

// keys returns the names of the files that end so, without that end.
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

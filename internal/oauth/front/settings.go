package front

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/mcp-bridge/bridge/internal/auth/token"
	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/oauth"
)

// Settings are the settings of the bridge as an authorization server in front of an identity provider.
type Settings struct {
	// Client is the bridge's client at the provider. It is required.
	Client *oauth.Client `yaml:"client"`
	// Scopes are requested at the provider, besides openid.
	Scopes []string `yaml:"scopes"`
	// ScopePrefix makes the front also request a client's scopes at the provider, each with this prefix. The client
	// then gets the scopes that the provider grants. If ScopePrefix is empty, only the user's consent decides.
	ScopePrefix string `yaml:"scope_prefix"`
	// Consent is ConsentAsk (the default) or ConsentRemember.
	Consent string `yaml:"consent"`
	// Redirects are allowed redirect addresses with schemes of programs, besides the Redirects of this package. An
	// empty list allows no such address, not even those of this package.
	Redirects []string `yaml:"redirects"`
	// KeyFile names a file with at least 32 bytes, the seed of all keys. If it is empty, the seed is the secret of the
	// cluster, or without a cluster random for each process.
	KeyFile string `yaml:"key_file"`
	// KeyFiles names several key files instead. Keys of the first file seal and sign; keys of all files open and
	// verify.
	KeyFiles []string `yaml:"key_files"`
	// StateDir is the folder for logins. If it is empty, logins are in memory until the process ends.
	StateDir string `yaml:"state_dir"`
	// AuthorizeParams are added to the authorization request at the provider.
	AuthorizeParams map[string]string `yaml:"authorize_params"`
}

// String returns the settings without the client's secret.
func (s *Settings) String() string {
	switch {
	case s == nil:
		return "<nil>"
	case s.Client == nil:
		return "{}"
	}
	return fmt.Sprintf("{%s %v %s %s %v %s %v %s %v}", s.Client.ID, s.Scopes, s.ScopePrefix, s.Consent, s.Redirects, s.KeyFile, s.KeyFiles, s.StateDir, s.AuthorizeParams)
}

// ConsentAsk and ConsentRemember are the values of Settings.Consent.
const (
	ConsentAsk      = "ask"      // ask each time
	ConsentRemember = "remember" // ask once for each client, browser and user, unless a page has sent the user
)

// Redirects are the addresses of well-known clients that need their own scheme.
var Redirects = []string{"cursor://anysphere.cursor-mcp/oauth/callback"}

// reserved are the parameters of an authorization request that the front sets.
var reserved = []string{"response_type", "response_mode", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge", "code_challenge_method", "request", "request_uri"}

// Validate reports faults of the settings, except faults of Client. It opens no files and shows no values.
func (s *Settings) Validate() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch c := s.Client; {
	case c == nil:
		say("client is missing: register the bridge at the provider, and write client: { id: …, secret: … }")
	case c.TokenURL != "" || len(c.Params) > 0:
		say("client must have neither token_url nor params: the issuer's metadata names the token endpoint, and authorize_params adds parameters")
	}
	if s.Consent != "" && s.Consent != ConsentAsk && s.Consent != ConsentRemember {
		say("consent must be ask or remember")
	}
	for i, scope := range s.Scopes {
		if wrong := token.CheckScope(scope); wrong != "" {
			say("scopes: item %d %s", i+1, wrong)
		}
	}
	if s.ScopePrefix != "" && token.CheckScope(s.ScopePrefix) != "" {
		say("scope_prefix must be the beginning of a scope, such as api://mcp-bridge/")
	}
	for i, address := range s.Redirects {
		if _, kind := classify(address); kind != program {
			say("redirects: item %d must be an address with a scheme of a program's own, such as cursor://anysphere.cursor-mcp/oauth/callback: https, and http on the user's machine, are allowed anyway", i+1)
		}
	}
	switch {
	case s.KeyFile != "" && len(s.KeyFiles) > 0:
		say("key_files has all of the keys: leave key_file out")
	case s.KeyFiles != nil && len(s.KeyFiles) == 0:
		say("key_files is empty")
	case s.StateDir != "" && s.KeyFile == "" && len(s.KeyFiles) == 0:
		say("state_dir needs key_file: without it, the stored logins cannot be read after a restart")
	}
	for _, name := range slices.Sorted(maps.Keys(s.AuthorizeParams)) {
		if slices.Contains(reserved, name) {
			say("authorize_params: %s must not be here: the bridge sets it itself", name)
		}
	}
	return errors.Join(errs...)
}

const (
	minKey = 32 // bytes
	maxKey = 64 << 10
	// minDifferent is the minimum number of different bytes in a key. Even the digits of a random number have more.
	minDifferent = 8
)

// Look makes all paths absolute and reads the keys. fault is the reason why the file of a setting cannot be used, and
// remark is a warning.
func (s *Settings) Look(absolute func(string) string) (setting, remark string, fault error) {
	if s.StateDir != "" {
		s.StateDir = absolute(s.StateDir)
		if info, err := os.Stat(s.StateDir); err == nil && !info.IsDir() {
			return "state_dir", "", errors.New("not a folder")
		}
	}
	setting, files := "key_files", s.KeyFiles
	if s.KeyFile != "" {
		s.KeyFile = absolute(s.KeyFile)
		setting, files = "key_file", []string{s.KeyFile}
	}
	for i := range files {
		files[i] = absolute(files[i])
		item := ""
		if setting == "key_files" {
			item = fmt.Sprintf("item %d ", i+1)
		}
		if _, err := secret(files[i]); err != nil {
			return setting, "", fmt.Errorf("%s%w", item, err)
		}
		if info, err := os.Stat(files[i]); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
			remark = "others on this machine can read " + cmp.Or(strings.TrimSpace(item), "it") + ": chmod 600"
		}
	}
	return setting, remark, nil
}

// Secrets reads the key files. If none is set, it returns nothing. The error names the setting.
func (s *Settings) Secrets() (all []string, err error) {
	setting, files := "key_files", s.KeyFiles
	if s.KeyFile != "" {
		setting, files = "key_file", []string{s.KeyFile}
	}
	for _, name := range files {
		text, err := secret(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %s %w", setting, name, err)
		}
		all = append(all, text)
	}
	return all, nil
}

// secret reads a key file of minKey to maxKey bytes. Callers put the name of the setting before its error.
func secret(name string) (string, error) {
	data, err := files.Read(name, maxKey+1)
	if errors.Is(err, os.ErrNotExist) {
		return "", errors.New("does not exist: make it with openssl rand -out FILE 32")
	} else if err != nil {
		return "", errors.New("cannot be read")
	}
	seen := map[byte]bool{}
	for _, b := range data {
		seen[b] = true
	}
	switch {
	case len(data) < minKey:
		return "", errors.New("has fewer than 32 bytes: make it with openssl rand -out FILE 32")
	case len(data) > maxKey:
		return "", errors.New("has more than 64 KiB")
	case len(seen) < minDifferent:
		return "", errors.New("can be guessed: make it with openssl rand -out FILE 32")
	}
	return string(data), nil
}

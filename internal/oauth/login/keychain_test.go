package login_test

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/zalando/go-keyring"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/internal/oauth/login"
	"github.com/mcp-bridge/bridge/internal/programtest"
)

// mocked makes the keychain of this process one in memory, and returns the opener of a store in a folder. how is
// the value of MCP_BRIDGE_LOGINS.
func mocked(t *testing.T) (open func(how string) (*login.Store, *adaptertest.Log), dir string) {
	keyring.MockInit()
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere") // the mock needs none
	t.Setenv("MCP_BRIDGE_STATE_DIR", t.TempDir())
	dir = filepath.Join(os.Getenv("MCP_BRIDGE_STATE_DIR"), "logins")
	return func(how string) (*login.Store, *adaptertest.Log) {
		t.Helper()
		t.Setenv("MCP_BRIDGE_LOGINS", how)
		log := &adaptertest.Log{}
		s, err := login.OpenOwn(slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return s, log
	}, dir
}

func stored(t *testing.T, s *login.Store, access string) {
	t.Helper()
	if err := s.Write("k", &login.Login{Server: "https://a.example.com/mcp", Access: access}); err != nil {
		t.Fatal(err)
	}
}

// has reports the access token of a store's login.
func has(t *testing.T, s *login.Store) string {
	t.Helper()
	l, err := s.Read("k")
	if err != nil || l == nil {
		t.Fatalf("Read = %+v, %v", l, err)
	}
	return l.Access
}

func clear(t *testing.T, dir string) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "k.json"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), "the-token")
}

// I-259: logins are sealed with a key in the keychain. Logins in clear are read, and sealed when they are next
// written. Another process finds the key. The key goes with the last login.
func TestKeychain(t *testing.T) {
	open, dir := mocked(t)
	plain, _ := open("file")
	stored(t, plain, "the-token-1")
	if !clear(t, dir) {
		t.Error("MCP_BRIDGE_LOGINS=file seals")
	}
	s, log := open("keychain")
	if got := has(t, s); got != "the-token-1" {
		t.Errorf("a login in clear: %q", got)
	}
	stored(t, s, "the-token-2")
	if clear(t, dir) {
		t.Error("the file has the token")
	}
	other, _ := open("keychain")
	if got := has(t, other) + has(t, s); got != "the-token-2the-token-2" {
		t.Errorf("a sealed login: %q", got)
	}
	// A file under another name is not opened.
	data, err := os.ReadFile(filepath.Join(dir, "k.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "m.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := s.Read("m"); l != nil || err == nil {
		t.Errorf("a file that was moved: %+v, %v", l, err)
	}
	if l, err := plain.Read("k"); l != nil || err == nil || !strings.Contains(err.Error(), "MCP_BRIDGE_LOGINS=file forbids the keychain") {
		t.Errorf("a sealed login without the keychain: %+v, %v", l, err)
	}
	if err := other.RemoveKey(); err != nil {
		t.Fatal(err)
	}
	if err := other.RemoveKey(); err != nil {
		t.Errorf("twice: %v", err)
	}
	fresh, _ := open("keychain")
	if l, err := fresh.Read("k"); l != nil || err == nil || !strings.Contains(err.Error(), "its key is not in the keychain") {
		t.Errorf("without the key: %+v, %v", l, err)
	}
	stored(t, fresh, "the-token-3")
	if got := has(t, s); got != "the-token-3" { // which knew the former key
		t.Errorf("with a new key: %q", got)
	}
	if log.String() != "" {
		t.Errorf("the log: %s", log)
	}
}

// A keychain that cannot be used leaves logins in clear, with one line in the log, unless the user requires it. A
// sealed login is not replaced then.
func TestKeychainAway(t *testing.T) {
	open, dir := mocked(t)
	s, _ := open("keychain")
	stored(t, s, "the-token-1")
	keyring.MockInitWithError(errors.New("it is locked"))
	t.Cleanup(keyring.MockInit)
	stored(t, s, "the-token-2") // this process knows the key
	if clear(t, dir) {
		t.Error("a process that knows the key writes in clear")
	}
	required, _ := open("keychain")
	if l, err := required.Read("k"); l != nil || err == nil || !strings.Contains(err.Error(), "MCP_BRIDGE_LOGINS=file signs in without it") {
		t.Errorf("a sealed login: %+v, %v", l, err)
	}
	if err := required.Write("k", &login.Login{Server: "x"}); err == nil || !strings.Contains(err.Error(), "it is locked") {
		t.Errorf("required: %v", err)
	}
	auto, log := open("keychain")
	auto.Auto()
	for range 2 {
		stored(t, auto, "the-token-3")
	}
	if !clear(t, dir) || strings.Count(log.String(), "in clear") != 1 || !strings.Contains(log.String(), "it is locked") {
		t.Errorf("in clear: %t; the log: %s", clear(t, dir), log)
	}
	if err := auto.RemoveKey(); err != nil {
		t.Errorf("RemoveKey: %v", err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("MCP_BRIDGE_LOGINS", "vault")
	if _, err := login.OpenOwn(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "it must be keychain or file") {
		t.Errorf("another value: %v", err)
	}
}

// A prompt of the keychain that nobody answers holds nobody for long, and nobody twice. Its answer counts later.
func TestKeychainPrompt(t *testing.T) {
	open, dir := mocked(t)
	sealer, _ := open("keychain")
	stored(t, sealer, "the-token-1")
	synctest.Test(t, func(t *testing.T) {
		s, _ := open("keychain")
		answered := make(chan struct{})
		s.Prompting(answered)
		for n, want := range []time.Duration{10 * time.Second, 0} {
			began := time.Now()
			if l, err := s.Read("k"); l != nil || err == nil || !strings.Contains(err.Error(), "the keychain does not answer: unlock it") || time.Since(began) != want {
				t.Errorf("read %d: %+v, %v after %v", n+1, l, err, time.Since(began))
			}
		}
		s.Auto()
		if stored(t, s, "the-token-2"); !clear(t, dir) {
			t.Error("the login was not stored in clear")
		}
		close(answered)
		synctest.Wait()
		if stored(t, s, "the-token-3"); clear(t, dir) || has(t, s) != "the-token-3" {
			t.Error("the answer does not count")
		}
	})
}

// awaitKeychain waits until a keychain serves the session.
func awaitKeychain(t *testing.T) {
	t.Helper()
	bus, err := dbus.ConnectSessionBus()
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	changes := make(chan *dbus.Signal, 10)
	bus.Signal(changes)
	const name = "org.freedesktop.secrets"
	if err := bus.AddMatchSignal(dbus.WithMatchInterface("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, name)); err != nil {
		t.Fatal(err)
	}
	served := false
	if err := bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, name).Store(&served); err != nil {
		t.Fatal(err)
	}
	for !served {
		served = (<-changes).Name == "org.freedesktop.DBus.NameOwnerChanged"
	}
}

// The keychain of the system itself, in a session of its own.
func TestKeychainOfSystem(t *testing.T) {
	if os.Getenv("BRIDGE_TEST_KEYCHAIN") != "" {
		awaitKeychain(t)
		dir := filepath.Join(os.Getenv("MCP_BRIDGE_STATE_DIR"), "logins")
		for _, token := range []string{"the-token-1", "the-token-2"} {
			s, err := login.OpenOwn(slog.Default())
			if err != nil {
				t.Fatal(err)
			}
			stored(t, s, token)
			again, err := login.OpenOwn(slog.Default())
			if err != nil {
				t.Fatal(err)
			}
			if got := has(t, again); got != token || clear(t, dir) {
				t.Errorf("the login: %q, in clear: %t", got, clear(t, dir))
			}
			if err := again.RemoveKey(); err != nil {
				t.Error(err)
			}
			if l, err := s.Read("k"); l == nil || err != nil { // it knows the key
				t.Errorf("after RemoveKey: %v", err)
			}
			if last, err := login.OpenOwn(slog.Default()); err != nil {
				t.Error(err)
			} else if _, err := last.Read("k"); err == nil {
				t.Error("the key is still there")
			}
		}
		return
	}
	for _, program := range []string{"dbus-run-session", "gnome-keyring-daemon"} {
		programtest.Need(t, program)
	}
	home := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A password of one letter unlocks the keychain of this session, which is in the folder. The daemon ends with
	// the bus.
	cmd := exec.CommandContext(t.Context(), "dbus-run-session", "--", "sh", "-c", `printf x | gnome-keyring-daemon --unlock --components=secrets >&2 && exec "$0" -test.run='^TestKeychainOfSystem$'`, self)
	cmd.Env = append(os.Environ(), "BRIDGE_TEST_KEYCHAIN=1", "HOME="+home, "XDG_DATA_HOME="+home, "XDG_RUNTIME_DIR="+home, "XDG_CONFIG_HOME="+home, "MCP_BRIDGE_STATE_DIR="+home, "MCP_BRIDGE_LOGINS=keychain")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

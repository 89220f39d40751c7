package files

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// check checks the text and mode of the only file in a folder.
func check(t *testing.T, path, want string) {
	t.Helper()
	if got, err := Read(path, 1<<10); err != nil || string(got) != want {
		t.Errorf("the file has %q, %v, want %q", got, err, want)
	}
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v", info.Mode())
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("the folder has %v, %v, want one file", all, err)
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if _, err := Read(path, 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{0: "", 4: "1234", 5: "12345", 6: "12345"} {
		if got, err := Read(path, limit); err != nil || string(got) != want {
			t.Errorf("limit %d: %q, %v, want %q", limit, got, err, want)
		}
	}
}

func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := Create(path, []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, []byte("second")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("there is a file: %v", err)
	}
	check(t, path, "first")
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for _, text := range []string{"first, and longer", "second", ""} {
		if err := Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		check(t, path, text)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("third")); err != nil {
		t.Fatal(err)
	}
	check(t, path, "third") // the mode of the old file is not the new one's
	if err := Write(filepath.Join(path, "none"), nil); err == nil {
		t.Error("there is no such folder: written")
	}
}

// A file that cannot be replaced stays, and the new one does not.
func TestWriteFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := Write(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	err := write(path, []byte("new"), func(_, _ string) error { return syscall.EACCES }, 0)
	if !errors.Is(err, syscall.EACCES) {
		t.Errorf("err = %v", err)
	}
	check(t, path, "old")
}

// Windows refuses to replace a file that somebody reads, so write tries again for a while.
func TestWriteWhileRead(t *testing.T) {
	dir := t.TempDir()
	for held, ok := range map[time.Duration]bool{time.Second: true, 3 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(dir, "a")
			begin := time.Now()
			err := write(path, []byte("new"), func(from, to string) error {
				if time.Since(begin) < held {
					return syscall.EACCES
				}
				return os.Rename(from, to)
			}, 2*time.Second)
			if (err == nil) != ok {
				t.Errorf("held for %v: %v", held, err)
			}
		})
	}
}

// A process that dies before the rename leaves the old file whole, and one that nobody reads.
func TestWriteCrash(t *testing.T) {
	if path := os.Getenv("FILES_TEST_CRASH"); path != "" {
		_ = write(path, []byte("new"), func(_, _ string) error { os.Exit(7); return nil }, 0)
	}
	path := filepath.Join(t.TempDir(), "a")
	if err := Write(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWriteCrash$")
	child.Env = append(os.Environ(), "FILES_TEST_CRASH="+path)
	if out, err := child.CombinedOutput(); child.ProcessState.ExitCode() != 7 {
		t.Fatalf("%v: %s", err, out)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("after a crash: %q, %v", got, err)
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	for _, name := range left {
		if name != path && !strings.HasPrefix(filepath.Base(name), ".new-") {
			t.Errorf("a crash has left %s", name)
		}
	}
	if err := Write(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "new" {
		t.Errorf("after the next Write: %q, %v", got, err)
	}
}

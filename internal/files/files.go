// Package files reads files up to a size, and writes files as a whole.
package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Read returns the first limit bytes of a file. If files may have n bytes, the caller passes n+1, so that a longer
// result shows that the file is too large.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// Unpathed returns the error about a file without its path, which may be a secret or known already.
func Unpathed(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// Reason returns the error about a file, without the path, as words that can follow the name of a setting. An error
// that is no fs.PathError becomes "cannot be read".
func Reason(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("does not exist")
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return errors.New("cannot be read")
}

// Create writes a new file that only its owner can read. If there is a file already, the error is fs.ErrExist. After
// another error there is no file.
func Create(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return fill(f, data)
}

// Write writes a file that only its owner can read, and replaces an older one. Readers see the whole old file or the
// whole new one, even after a crash. A crash may leave a file .new-* beside it.
func Write(path string, data []byte) error {
	var patience time.Duration
	if runtime.GOOS == "windows" {
		patience = 2 * time.Second
	}
	return write(path, data, os.Rename, patience)
}

// write is Write with the function rename. It repeats a failed rename until patience is over, because Windows refuses
// to replace a file that another process reads.
func write(path string, data []byte, rename func(from, to string) error, patience time.Duration) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // with the mode 0600
	if err != nil {
		return err
	}
	if err := fill(f, data); err != nil {
		return err
	}
	for last := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if err = rename(f.Name(), path); err == nil {
			return nil
		}
		if !time.Now().Before(last) {
			_ = os.Remove(f.Name())
			return err
		}
	}
}

// fill writes data to a new file, on disk, and closes the file. If that fails, fill removes the file.
func fill(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"os"

	"github.com/mcp-bridge/bridge/internal/files"
	"github.com/mcp-bridge/bridge/internal/strict"
)

// readFile returns the content of a file. A file that is too large is cut one byte beyond strict.MaxFile, so that the
// decoder rejects it.
func readFile(path string) ([]byte, error) { return files.Read(path, strict.MaxFile+1) }

// Stream reports whether path is a pipe or a device, such as a terminal. To read it may block, or take input from
// another reader.
func Stream(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir() && path != os.DevNull
}

// Digest returns a digest of the content of a file. For a file that cannot be read, and for a Stream, it returns a text
// that says so.
func Digest(path string) string {
	if Stream(path) {
		return "unreadable: it can be read only once"
	}
	data, err := readFile(path)
	if err != nil {
		return "unreadable: " + files.Reason(err).Error()
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

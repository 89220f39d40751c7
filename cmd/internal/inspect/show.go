package inspect

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/cmd/internal/terminal"
)

// shower prints content of tools, prompts and resources.
type shower struct {
	*console
	dir  string // folder for binary content; empty means that none is written
	name string // the beginning of file names
	n    int    // number of files written
}

// indented adds line breaks and indentation to JSON, and changes nothing else.
func indented(raw []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// result prints a tool's answer. Text repeats structured content, so result prints structured content only if there is
// no text.
func (s *shower) result(r gjson.Result) error {
	texts := 0
	for _, block := range r.Get("content").Array() {
		if block.Get("type").String() == "text" {
			texts++
		}
		if err := s.block(block); err != nil {
			return err
		}
	}
	if structured := r.Get("structuredContent"); structured.Exists() && texts == 0 {
		return s.lines(indented([]byte(structured.Raw)))
	}
	return nil
}

// lines prints text, with a line break at its end.
func (s *shower) lines(text string) error {
	text = s.text(text)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return s.emit(text)
}

func (s *shower) block(b gjson.Result) error {
	switch b.Get("type").String() {
	case "text":
		return s.lines(b.Get("text").String())
	case "image", "audio":
		return s.binary(b.Get("type").String(), b.Get("mimeType").String(), b.Get("data").String())
	case "resource_link":
		return s.lines("[link] " + linkText(b))
	case "resource":
		r := b.Get("resource")
		if text := r.Get("text"); text.Exists() {
			if err := s.lines("[resource] " + linkText(r)); err != nil {
				return err
			}
			return s.lines(text.String())
		}
		return s.binary("resource "+terminal.OneLine(r.Get("uri").String()), r.Get("mimeType").String(), r.Get("blob").String())
	}
	return s.lines(indented([]byte(b.Raw))) // an unknown type
}

// linkText describes a resource on one line.
func linkText(r gjson.Result) string {
	text := r.Get("uri").String()
	var more []string
	for _, key := range []string{"name", "mimeType"} {
		if v := r.Get(key).String(); v != "" {
			more = append(more, v)
		}
	}
	if size := r.Get("size"); size.Exists() {
		more = append(more, size.Raw+" bytes")
	}
	if more != nil {
		text += " (" + strings.Join(more, ", ") + ")"
	}
	if about := r.Get("description").String(); about != "" {
		text += ": " + about
	}
	return terminal.OneLine(text)
}

// binary writes binary content to a file, or prints its type and size.
func (s *shower) binary(what, kind, encoded string) error {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return s.lines(fmt.Sprintf("[%s] %s, not valid base64", what, terminal.OneLine(kind)))
	}
	text := fmt.Sprintf("[%s] %s, %d bytes", what, cmp.Or(terminal.OneLine(kind), "of an unnamed type"), len(data))
	if s.dir == "" {
		return s.lines(text + "; --output-dir DIR writes it to a file")
	}
	path, err := s.save(kind, data)
	if err != nil {
		return exit.With(exit.Failure, err)
	}
	return s.lines(text + ": " + path)
}

// maxSaved bounds the search for a free name.
const maxSaved = 10_000

// save writes data to a new file. It never replaces a file. From the server, a file name can only have letters, digits
// and underscores.
func (s *shower) save(kind string, data []byte) (string, error) {
	for s.n < maxSaved {
		s.n++
		path := filepath.Join(s.dir, fmt.Sprintf("%s-%d%s", fileName(s.name), s.n, extension(kind)))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(data)
		return path, errors.Join(err, f.Close())
	}
	return "", fmt.Errorf("%s has too many files of this name", s.dir)
}

// fileName turns a tool's name into a file name.
func fileName(name string) string {
	name = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '-'
	}, name), "-")
	return cmp.Or(name[:min(len(name), 64)], "content")
}

var extensions = map[string]string{
	"image/png":          ".png",
	"image/jpeg":         ".jpg",
	"image/jpg":          ".jpg",
	"image/gif":          ".gif",
	"image/webp":         ".webp",
	"image/svg+xml":      ".svg",
	"audio/wav":          ".wav",
	"audio/x-wav":        ".wav",
	"audio/wave":         ".wav",
	"audio/mpeg":         ".mp3",
	"audio/mp3":          ".mp3",
	"audio/ogg":          ".ogg",
	"audio/flac":         ".flac",
	"video/mp4":          ".mp4",
	"application/pdf":    ".pdf",
	"application/json":   ".json",
	"application/zip":    ".zip",
	"application/gzip":   ".gz",
	"application/x-gzip": ".gz",
	"text/plain":         ".txt",
}

// extension returns the file extension for a media type. It does not use the system's table, which differs between
// machines.
func extension(kind string) string {
	kind, _, _ = strings.Cut(kind, ";")
	return cmp.Or(extensions[strings.ToLower(strings.TrimSpace(kind))], ".bin")
}

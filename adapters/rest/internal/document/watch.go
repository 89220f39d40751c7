package document

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mcp-bridge/bridge/internal/address"
)

// stamp describes a file. The zero stamp is that of a missing file.
type stamp struct {
	size     int64
	modified time.Time
	path     string // with links resolved, since containers exchange a volume by a link
}

// watched detects changes in the texts of a document.
type watched struct {
	fetch *fetcher
	files map[string]stamp
	urls  []string
}

// unsettled is the age below which the time of a file proves nothing: the file may have been written
// again within the same tick of the clock. A time further in the future was set on purpose.
const unsettled = time.Second

// moment describes files before they are read, so that a file that is replaced during the reading
// counts as changed.
type moment struct {
	at    time.Time
	files map[string]stamp
}

// stampFiles records the state of the texts that are files.
func stampFiles(texts []string) moment {
	m := moment{time.Now(), map[string]stamp{}}
	for _, t := range texts {
		if t != "" && !address.IsHTTP(t) {
			m.files[t] = stampOf(t)
		}
	}
	return m
}

// watch returns the state of a document's texts, which were read after the moment before.
func watch(fetch *fetcher, texts []string, before moment) *watched {
	w := &watched{fetch: fetch, files: map[string]stamp{}}
	for _, t := range texts {
		if address.IsHTTP(t) {
			w.urls = append(w.urls, t)
			continue
		}
		s, known := before.files[t]
		if !known {
			s = stampOf(t)
		}
		if age := before.at.Sub(s.modified); -unsettled < age && age < unsettled {
			s = stamp{size: -1} // differs from every stamp, so that the file is read once more
		}
		w.files[t] = s
	}
	if fetch != nil {
		fetch.keep(w.urls)
	}
	return w
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.Size(), info.ModTime(), real}
}

func (w *watched) filesChanged() bool {
	for path, s := range w.files {
		if stampOf(path) != s {
			return true
		}
	}
	return false
}

// urlsChanged reports whether a URL has changed. If none has, the error is that of the first URL that
// could not be read.
func (w *watched) urlsChanged(ctx context.Context) (bool, error) {
	var first error
	for _, u := range w.urls {
		changed, err := w.fetch.changed(ctx, u)
		if changed {
			return true, nil
		}
		first = cmp.Or(first, err)
	}
	return false, first
}

func (w *watched) texts() []string {
	return append(slices.Sorted(maps.Keys(w.files)), w.urls...)
}

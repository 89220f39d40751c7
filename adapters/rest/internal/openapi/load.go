package openapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/overlay"
	"github.com/mcp-bridge/bridge/adapters/rest/internal/openapi/tree"
	"github.com/mcp-bridge/bridge/internal/address"
	"github.com/mcp-bridge/bridge/internal/files"
)

// Fetcher reads documents from URLs. It decides which addresses are allowed, and bounds the time
// and the size.
type Fetcher interface {
	Fetch(ctx context.Context, url string) ([]byte, error)
	// Public reports whether a URL was read at a public address. The author of such a document may be
	// outside the bridge's network.
	Public(url string) bool
}

// Source names a document, and the texts that may be read with it.
type Source struct {
	// Location is a path or a URL. With Data, Location is only the document's name in warnings, and
	// the base of relative references.
	Location string
	Data     []byte // the document itself, or nil; must not change
	// Fetcher reads URLs, including those of references. If it is nil, Load refuses URLs.
	Fetcher Fetcher
	// Folders are the folders from which references may read files, besides the document's own.
	Folders []string
	// MaxBytes bounds the bytes of the document and of all texts that it refers to; 64 MiB if 0. A
	// larger document cannot be loaded.
	MaxBytes int64
	// Overlays change the document before it is read, in order. They do not change the texts that
	// the document refers to.
	Overlays []*overlay.Overlay
	// MaxFiles bounds the number of files and URLs; 5,000 if 0. A document with more of them cannot
	// be loaded.
	MaxFiles int
}

const (
	maxFiles    = 5000 // the default of MaxFiles
	maxWarnings = 1000 // of one Load, or one Tools
)

// file is a text with its tree.
type file struct {
	location string
	root     *tree.Node // nil if the text is unreadable
	external bool       // the text refers to other texts
	names    *nameTable // nil until a reference needs it
	ids      bool       // a schema may have an $id
}

// loader reads texts and resolves references between them.
type loader struct {
	ctx      context.Context // of Load; nil afterwards, when no more texts are read
	src      Source
	left     int64 // bytes that may still be read
	exceeded error // the bound that the document exceeds
	files    []*file
	byLoc    map[string]uint16
	siblings bool                // members beside a $ref count, as since OpenAPI 3.1
	dirs     map[string]*os.Root // folders of files, opened at the first reference to one

	mu       sync.Mutex // guards the fields below, which Tools also fills
	targets  map[target]*tree.Node
	problems map[target]*failure
	round    int                   // 1 in Load, more in Tools
	nested   int                   // pointers in progress that lead through a reference
	labels   map[*tree.Node]string // names for the targets of references
	counts   map[*tree.Node]int    // what ways has returned
	loops    map[hop]bool          // what reaches has returned
	patterns map[string]bool       // whether a pattern compiles
	renames  bool                  // a schema had changed names: other schemas of the document probably have too
	buf      []byte                // for writing schemas, as are defs and names
	defs     map[defKey]*def
	names    map[string]bool
	answers  map[outputKey][]byte // output schemas, while Tools runs
	warned   map[string]bool      // warnings of this Load or Tools
	known    map[string]bool      // warnings of Load
	report   func(Warning)
}

type target struct {
	file uint16
	ref  string
	in   *resource
}

// Load reads a document. The error says why there is no document; all other faults are among the
// document's warnings.
func Load(ctx context.Context, src Source) (*Document, error) {
	src.MaxBytes, src.MaxFiles = cmp.Or(src.MaxBytes, 64<<20), cmp.Or(src.MaxFiles, maxFiles)
	if !address.IsHTTP(src.Location) && src.Location != "" {
		abs, err := filepath.Abs(src.Location)
		if err != nil {
			return nil, err
		}
		src.Location = abs
	}
	l := &loader{
		ctx:      ctx,
		src:      src,
		left:     src.MaxBytes,
		byLoc:    map[string]uint16{},
		dirs:     map[string]*os.Root{},
		targets:  map[target]*tree.Node{},
		problems: map[target]*failure{},
		round:    1,
		labels:   map[*tree.Node]string{},
		loops:    map[hop]bool{},
		counts:   map[*tree.Node]int{},
		patterns: map[string]bool{},
		defs:     map[defKey]*def{},
		names:    map[string]bool{},
		warned:   map[string]bool{},
	}
	doc := &Document{Location: src.Location, load: l}
	l.report = func(w Warning) { doc.Warnings = append(doc.Warnings, w) }
	defer l.release()
	data := src.Data
	if data == nil {
		var err error
		if data, err = l.read(src.Location, true); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name(src.Location), files.Unpathed(err))
		}
	} else if int64(len(data)) > l.left {
		return nil, fmt.Errorf("%s: %w", l.name(src.Location), l.tooLarge())
	}
	l.left -= int64(len(data))
	f, err := l.parse(src.Location, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.name(src.Location), err)
	}
	for _, o := range src.Overlays {
		if f.root, err = o.Apply(f.root, func(line int, text string) { l.addWarning(Warning{o.Name, line, text}) }); err != nil {
			return nil, err
		}
		f.external = f.external || o.Far
	}
	if err := l.document(doc, f.root); err != nil {
		return nil, fmt.Errorf("%s: %w", l.name(src.Location), err)
	}
	// Tools reads the schemas later, when no more files are read.
	for i := 0; i < len(l.files); i++ { // the list grows
		if f := l.files[i]; f.external {
			left := 1 << 22
			l.fetch(f.root, false, map[*tree.Kids]bool{}, &left)
		}
	}
	if l.exceeded != nil {
		// Parts beyond the bound would be missing without notice.
		return nil, fmt.Errorf("%s: %w", l.name(src.Location), l.exceeded)
	}
	for i, f := range l.files {
		if i > 0 || src.Data == nil {
			doc.Files = append(doc.Files, f.location)
		}
	}
	return doc, nil
}

// tooLarge records and returns the error that the document exceeds MaxBytes.
func (l *loader) tooLarge() error {
	l.exceeded = fmt.Errorf("the document and its referenced files have more than %d bytes, the limit for one document: use a smaller document, or a part of it", l.src.MaxBytes)
	return l.exceeded
}

// tooMany records and returns the error that the document exceeds MaxFiles.
func (l *loader) tooMany() error {
	l.exceeded = fmt.Errorf("the document and the files that it refers to are more than %d files, which is the limit for one document: bundle them into fewer", l.src.MaxFiles)
	return l.exceeded
}

// release frees the memory and closes the folders that only Load needed.
func (l *loader) release() {
	l.ctx = nil
	l.known, l.warned = l.warned, map[string]bool{}
	l.src.Data = nil
	for _, dir := range l.dirs {
		dir.Close()
	}
}

// name returns a file's name for messages.
func (l *loader) name(location string) string {
	if location == "" {
		return "the document"
	}
	if address.IsHTTP(location) {
		return address.Shown(location)
	}
	if rel, err := filepath.Rel(filepath.Dir(l.src.Location), location); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return filepath.Base(location)
}

// warn records a fault at n, unless it is recorded already. n may be nil.
func (l *loader) warn(n *tree.Node, format string, args ...any) {
	w := Warning{Text: fmt.Sprintf(format, args...)}
	if n != nil {
		w.File, w.Line = l.name(l.files[n.File].location), int(n.Line)
	}
	l.addWarning(w)
}

func (l *loader) addWarning(w Warning) {
	key := w.String()
	if l.warned[key] || l.known[key] || len(l.warned) > maxWarnings {
		return
	}
	l.warned[key] = true
	if len(l.warned) > maxWarnings {
		w = Warning{File: w.File, Text: "there are more warnings than can be shown"}
	}
	l.report(w)
}

// parse parses a text as JSON or YAML, whichever it is, and adds it to the files.
func (l *loader) parse(location string, data []byte) (*file, error) {
	i := uint16(len(l.files))
	f := &file{location: location}
	l.files = append(l.files, f)
	l.byLoc[location] = i
	warn := func(line int32, s string) {
		l.addWarning(Warning{
			File: l.name(location),
			Line: int(line),
			Text: s,
		})
	}
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n\ufeff"), []byte("<")) {
		return f, errors.New("is HTML or XML, not an OpenAPI document: use the JSON or YAML document behind the page")
	}
	f.ids = bytes.Contains(data, []byte("$id"))
	var err error
	f.root, f.external, err = tree.Parse(data, i, warn)
	return f, err
}

// read returns the bytes at a location. If main is set, that is the document itself, which may be in
// any folder.
func (l *loader) read(location string, main bool) ([]byte, error) {
	switch {
	case l.ctx == nil:
		return nil, errors.New("other files are read only for references where OpenAPI allows them: move the reference, or put the content here")
	case location == "":
		return nil, errors.New("no document is named")
	case address.IsHTTP(location):
		if l.src.Fetcher == nil {
			return nil, errors.New("URLs are not allowed here")
		}
		data, err := l.src.Fetcher.Fetch(l.ctx, location)
		if err == nil && int64(len(data)) > l.left {
			err = l.tooLarge()
		}
		return data, err
	case main:
		info, err := os.Stat(location)
		if err != nil {
			return nil, err
		}
		return l.readAll(info, func() (*os.File, error) { return os.Open(location) })
	}
	why := errors.New("is outside of the document's folder: add its own folder, or one above that, to trusted")
	for _, folder := range append([]string{filepath.Dir(l.src.Location)}, l.src.Folders...) {
		abs, err := filepath.Abs(folder)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(abs, location)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		dir := l.dirs[abs]
		if dir == nil {
			if dir, err = os.OpenRoot(abs); err != nil {
				why = files.Unpathed(err)
				continue
			}
			l.dirs[abs] = dir
		}
		info, err := dir.Stat(rel)
		if err != nil { // a link may lead out of this folder, but not out of the next one
			why = files.Unpathed(err)
			continue
		}
		return l.readAll(info, func() (*os.File, error) { return dir.Open(rel) })
	}
	return nil, why
}

// readAll reads a regular file. It opens no other kind of file, since opening a pipe would wait for
// a writer.
func (l *loader) readAll(info fs.FileInfo, open func() (*os.File, error)) ([]byte, error) {
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", info.Name())
	case info.Size() > l.left:
		return nil, l.tooLarge()
	}
	f, err := open()
	if err != nil {
		return nil, files.Unpathed(err)
	}
	defer f.Close()
	buf := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	if _, err := buf.ReadFrom(io.LimitReader(f, l.left+1)); err != nil {
		return nil, files.Unpathed(err)
	}
	if int64(buf.Len()) > l.left {
		return nil, l.tooLarge()
	}
	return buf.Bytes(), nil
}

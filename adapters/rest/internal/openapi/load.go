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
)

// Fetcher reads documents from URLs. It decides which addresses may be reached,
// how long that may take and how much it may bring.
type Fetcher interface {
	Fetch(ctx context.Context, url string) ([]byte, error)
	// Public reports whether what was read of the URL was at an address of the internet:
	// then its author need not be somebody within the network of the bridge.
	Public(url string) bool
}

// Source says where a document is and what may be read with it.
type Source struct {
	// Location is a path or a URL. With Data it is only the name under which
	// warnings speak of it, and what relative references start from.
	Location string
	Data     []byte // the document itself, when not nil; it must not change
	// Fetcher reads the URLs, also those that references name. Nil refuses them.
	Fetcher Fetcher
	// Root is the folder that references to other files must stay in: the
	// document's own when empty. "/" allows all.
	Root string
	// MaxBytes bounds the document and all that it refers to together; 64 MiB
	// when 0. A document that goes beyond it cannot be loaded.
	MaxBytes int64
	// Overlays change the document before it is looked into, one after the other. They
	// do not change what it refers to.
	Overlays []*overlay.Overlay
	// MaxFiles bounds how many files or URLs that are; 5,000 when 0. The same
	// holds for it.
	MaxFiles int
}

// bounds of what one document may bring along
const (
	maxFiles    = 5000
	maxWarnings = 1000
)

// file is one text that was read, and its tree.
type file struct {
	location string
	root     *tree.Node // nil when it cannot be read
	far      bool       // it refers to others
	anchors  map[string]*tree.Node
}

// loader reads texts and follows references between them.
type loader struct {
	ctx      context.Context // of Load; nil afterwards: nothing more is read
	src      Source
	left     int64 // bytes that may still be read
	exceeded error // the bound that the document goes beyond
	files    []*file
	byLoc    map[string]uint16
	siblings bool     // what stands beside a $ref counts: OpenAPI 3.1 and later
	dir      *os.Root // Root, opened at the first reference to a file

	mu       sync.Mutex // guards what follows, which tools fill later too
	targets  map[target]*tree.Node
	problems map[target]*failure
	round    int                   // 1 in Load, more in Tools
	nested   int                   // pointers that lead through references, at the moment
	labels   map[*tree.Node]string // what references call a node
	counts   map[*tree.Node]int
	loops    map[hop]bool
	patterns map[string]bool // whether they compile
	renames  bool            // a schema had names to be changed: others of the document probably have, too
	buf      []byte          // to write schemas in
	defs     map[defKey]*def // and what is used for that
	names    map[string]bool
	answers  map[answered][]byte // output schemas, while tools are made
	warned   map[string]bool
	known    map[string]bool // what was told by Load
	report   func(Warning)
}

type target struct {
	file uint16
	ref  string
}

// Load reads a document. The error says why there is none at all; everything
// else that is wrong is among the document's warnings.
func Load(ctx context.Context, src Source) (*Document, error) {
	src.MaxBytes, src.MaxFiles = cmp.Or(src.MaxBytes, 64<<20), cmp.Or(src.MaxFiles, maxFiles)
	if !address.IsHTTP(src.Location) && src.Location != "" {
		abs, err := filepath.Abs(src.Location)
		if err != nil {
			return nil, err
		}
		src.Location = abs
	}
	l := &loader{ctx: ctx, src: src, left: src.MaxBytes, byLoc: map[string]uint16{},
		targets: map[target]*tree.Node{}, problems: map[target]*failure{}, round: 1, labels: map[*tree.Node]string{}, loops: map[hop]bool{}, counts: map[*tree.Node]int{}, patterns: map[string]bool{}, defs: map[defKey]*def{}, names: map[string]bool{}, warned: map[string]bool{}}
	doc := &Document{Location: src.Location, load: l}
	l.report = func(w Warning) { doc.Warnings = append(doc.Warnings, w) }
	defer l.done()
	data := src.Data
	if data == nil {
		var err error
		if data, err = l.read(src.Location, true); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name(src.Location), reason(err))
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
		if f.root, err = o.Apply(f.root, func(line int, text string) { l.tell(Warning{o.Name, line, text}) }); err != nil {
			return nil, err
		}
		f.far = f.far || o.Far
	}
	if err := l.document(doc, f.root); err != nil {
		return nil, fmt.Errorf("%s: %w", l.name(src.Location), err)
	}
	// Schemas are only looked into when tools are made, and then nothing is
	// read any more.
	for i := 0; i < len(l.files); i++ { // grows
		if f := l.files[i]; f.far {
			left := 1 << 22
			l.fetch(f.root, false, map[*tree.Kids]bool{}, &left)
		}
	}
	if l.exceeded != nil {
		// What lies beyond the bound would be missing without a word from the API.
		return nil, fmt.Errorf("%s: %w", l.name(src.Location), l.exceeded)
	}
	for i, f := range l.files {
		if i > 0 || src.Data == nil {
			doc.Files = append(doc.Files, f.location)
		}
	}
	return doc, nil
}

// tooLarge says that the document goes beyond MaxBytes, and tooMany MaxFiles.
func (l *loader) tooLarge() error {
	l.exceeded = fmt.Errorf("the document and the files that it refers to have more than %d bytes together, which is the limit for one document: make it smaller, or use a part of it", l.src.MaxBytes)
	return l.exceeded
}

func (l *loader) tooMany() error {
	l.exceeded = fmt.Errorf("the document and the files that it refers to are more than %d files, which is the limit for one document: bundle them into fewer", l.src.MaxFiles)
	return l.exceeded
}

// done lets go of what was only needed to read.
func (l *loader) done() {
	l.ctx = nil
	l.known, l.warned = l.warned, map[string]bool{}
	l.src.Data = nil
	if l.dir != nil {
		l.dir.Close()
	}
}

// name is how messages call a file.
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

// warn notes a fault at n; the same one is told once.
func (l *loader) warn(n *tree.Node, format string, args ...any) {
	w := Warning{Text: fmt.Sprintf(format, args...)}
	if n != nil {
		w.File, w.Line = l.name(l.files[n.File].location), int(n.Line)
	}
	l.tell(w)
}

func (l *loader) tell(w Warning) {
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

// parse makes a tree of a text, JSON or YAML as its content has it.
func (l *loader) parse(location string, data []byte) (*file, error) {
	i := uint16(len(l.files))
	f := &file{location: location}
	l.files = append(l.files, f)
	l.byLoc[location] = i
	warn := func(line int32, s string) {
		l.tell(Warning{File: l.name(location), Line: int(line), Text: s})
	}
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n\ufeff"), []byte("<")) {
		return f, errors.New("is HTML or XML and no OpenAPI document: name the JSON or YAML that the page is made of")
	}
	var err error
	f.root, f.far, err = tree.Parse(data, i, warn)
	return f, err
}

// read returns the bytes at a location. main is the document itself, which may
// lie anywhere.
func (l *loader) read(location string, main bool) ([]byte, error) {
	switch {
	case l.ctx == nil:
		return nil, errors.New("is not read any more")
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
	root := cmp.Or(l.src.Root, filepath.Dir(l.src.Location))
	if l.dir == nil {
		var err error
		if l.dir, err = os.OpenRoot(root); err != nil {
			return nil, reason(err)
		}
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(abs, location)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, errors.New("is outside of the folder that references may lead to")
	}
	info, err := l.dir.Stat(rel)
	if err != nil {
		return nil, reason(err)
	}
	return l.readAll(info, func() (*os.File, error) { return l.dir.Open(rel) })
}

// reason leaves the path out, which the message has already.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// readAll reads a file. What is no plain file is not even opened: that of a
// pipe would wait for somebody to write.
func (l *loader) readAll(info fs.FileInfo, open func() (*os.File, error)) ([]byte, error) {
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", info.Name())
	case info.Size() > l.left:
		return nil, l.tooLarge()
	}
	f, err := open()
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	buf := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	if _, err := buf.ReadFrom(io.LimitReader(f, l.left+1)); err != nil {
		return nil, reason(err)
	}
	if int64(buf.Len()) > l.left {
		return nil, l.tooLarge()
	}
	return buf.Bytes(), nil
}

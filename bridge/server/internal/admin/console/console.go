// Package console is the web page of the bridge: a client of the API below /ui/api/v1, and of the
// MCP endpoints below /ui/mcp. It has no rights beyond those of its caller.
//
// The folder assets has the sources: ES modules without a framework, two files of styles, one of HTML. After a
// change, go generate makes the files that the bridge sends: one of the modules and one of the styles, both minified.
// So the page loads with three requests. The browser caches all files but the HTML until their content changes.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

//go:generate go run ./build

//go:embed served assets/index.html assets/icon.svg
var files embed.FS

// policy allows only content of the bridge itself: no script, style or address that a server may
// have put into a text. Images of results are blobs.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// asset is a file of the page as the bridge sends it.
type asset struct {
	kind string // its media type
	text []byte
	tag  string // its ETag; empty if it must not be cached
	// zipped returns the compressed text, made on the first call.
	zipped func() []byte
}

// page has the served files, by path.
type page map[string]*asset

// Handler serves the page. The path of a request is the part after the bridge's /ui: / is the page itself. Handler
// needs no authentication: all content of the page is part of the public program.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this method is not served here", http.StatusMethodNotAllowed)
			return
		}
		found := made()[r.URL.Path]
		if found == nil {
			http.Error(w, "the console has no such file", http.StatusNotFound)
			return
		}
		found.serve(w, r)
	})
}

func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	h, text, tag := w.Header(), a.text, a.tag
	h.Set("Content-Type", a.kind)
	h.Set("Vary", "Accept-Encoding")
	if gzips(r.Header.Values("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		text = a.zipped()
		tag = strings.Replace(tag, `"`, `"z`, 1)
	}
	if tag != "" { // the path has a hash: its content never changes
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("ETag", tag)
		if matches(r.Header.Values("If-None-Match"), tag) {
			h.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(text) // a client that left needs no answer
	}
}

// gzips reports whether a client accepts gzip.
func gzips(accepts []string) bool {
	for _, one := range strings.Split(strings.Join(accepts, ","), ",") {
		name, weight, _ := strings.Cut(strings.ToLower(one), ";")
		if strings.TrimSpace(name) == "gzip" {
			_, q, weighed := strings.Cut(weight, "q=")
			value, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			return !weighed || err == nil && value > 0
		}
	}
	return false
}

// matches reports whether a client has the content of that tag.
func matches(has []string, tag string) bool {
	for _, one := range strings.Split(strings.Join(has, ","), ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
			return true
		}
	}
	return false
}

// made returns the page, which the first call makes.
var made = sync.OnceValue(func() page {
	read := func(name string) []byte {
		text, err := files.ReadFile(name)
		if err != nil {
			panic(err) // the name is wrong
		}
		return text
	}
	all, shell := page{}, read("assets/index.html")
	for name, a := range map[string]*asset{
		"app.js":    newAsset("text/javascript; charset=utf-8", read("served/app.js")),
		"style.css": newAsset("text/css; charset=utf-8", read("served/style.css")),
		"icon.svg":  newAsset("image/svg+xml", read("assets/icon.svg")),
	} {
		hash := fmt.Sprintf("%x", sha256.Sum256(a.text))[:16]
		path := "assets/" + hash + "/" + name
		a.tag = `"` + hash + `"`
		all["/"+path] = a
		shell = bytes.ReplaceAll(shell, []byte("ASSETS/"+name), []byte(path)) // relative: a proxy may serve the bridge under any prefix
	}
	all["/"] = newAsset("text/html; charset=utf-8", shell)
	return all
})

func newAsset(kind string, text []byte) *asset {
	return &asset{
		kind: kind,
		text: text,
		zipped: sync.OnceValue(func() []byte {
			var b bytes.Buffer
			z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
			_, _ = z.Write(text)
			_ = z.Close() // a buffer takes everything
			return b.Bytes()
		}),
	}
}

// Build makes the files of ../served from the sources of the console in ../assets: go generate runs it in
// the folder above. The bridge has no minifier.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/tdewolff/minify/v2"
	"github.com/tdewolff/minify/v2/css"
	"github.com/tdewolff/minify/v2/js"
)

func main() {
	served, err := made("assets")
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range served {
		if err := os.WriteFile(filepath.Join("served", name), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// made returns the files that the bridge sends to browsers, by name.
func made(sources string) (map[string]string, error) {
	read := func(name string) (string, error) {
		text, err := os.ReadFile(filepath.Join(sources, name))
		return string(text), err
	}
	program, err := joined("app.js", read)
	if err != nil {
		return nil, err
	}
	style, err := read("style.css")
	if err != nil {
		return nil, err
	}
	pages, err := read("pages.css")
	if err != nil {
		return nil, err
	}
	small := minify.New()
	small.AddFunc("js", js.Minify)
	small.AddFunc("css", css.Minify)
	if program, err = small.String("js", program); err != nil {
		return nil, err
	}
	if style, err = small.String("css", style+pages); err != nil {
		return nil, err
	}
	return map[string]string{"app.js": program, "style.css": style}, nil
}

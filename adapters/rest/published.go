package rest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/internal/address"
)

// Catalog names the source of a catalogue, whose tools change while the bridge runs. Package catalog
// describes its form. The zero value means no catalogue.
type Catalog struct {
	// File or URL is the source of the catalogue. At most one of them is set.
	File string `yaml:"file"`
	URL  string `yaml:"url"`
	// Headers are sent with requests for URL only.
	Headers map[string]string `yaml:"headers" names:"header"`
	// Webhook accepts requests with Secret: to read everything again or, without File and URL, with a
	// new catalogue.
	Webhook bool   `yaml:"webhook"`
	Secret  string `yaml:"secret"`
	// Retry allows the bridge to repeat requests of tools that the catalogue declares harmless, even
	// with methods such as POST.
	Retry bool `yaml:"retry"`
}

// minSecret is the shortest Secret of a webhook, in bytes.
const minSecret = 16

func (c *Catalog) exists() bool { return c.File != "" || c.URL != "" || c.Webhook }

// location returns the source of the catalogue; empty if a webhook sends the catalogue.
func (c *Catalog) location() string {
	if c.URL != "" {
		return c.URL
	}
	return c.File
}

// Validate returns the faults in the settings, as Config.Validate does.
func (c *Catalog) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if u, err := url.Parse(c.URL); c.URL != "" && (!address.IsHTTP(c.URL) || err != nil || u.Host == "" || u.User != nil) {
		add("url must be a URL such as https://flows.example.com/tools.json, without a password")
	}
	if c.File != "" && c.URL != "" {
		add("file and url are both set: remove one")
	}
	if len(c.Headers) > 0 && c.URL == "" {
		add("headers are of no use without url")
	}
	for _, fault := range headerFaults(c.Headers) {
		add("%s", fault)
	}
	if c.Retry && !c.exists() {
		add("retry is of no use without file, url or webhook")
	}
	switch {
	case c.Webhook && len(c.Secret) < minSecret:
		add("secret must have at least %d characters: whoever knows it can change the tools", minSecret)
	case c.Secret != "" && !c.Webhook:
		add("secret is of no use without webhook: true")
	}
	return errors.Join(errs...)
}

// missing reports whether the file does not exist. Its writer may start after the bridge.
func (c *Catalog) missing() bool {
	_, err := os.Stat(c.File)
	return c.File != "" && errors.Is(err, fs.ErrNotExist)
}

// headerFaults returns the faults in headers without templates, apart from those by the tag names.
func headerFaults(headers map[string]string) []string {
	var all []string
	add := func(format string, name string) { all = append(all, fmt.Sprintf("headers: "+format, name)) }
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch {
		case remote.Reserved(name) && !strings.EqualFold(name, "Accept"):
			add("%s is set by the bridge itself: remove it", name)
		case !httpguts.ValidHeaderFieldValue(headers[name]):
			add("the value of %s has a line break or another character that a header cannot have", name)
		}
	}
	return all
}

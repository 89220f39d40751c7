package document

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/remote"
)

// A document and its references are not read from a link-local address, even if its own server's
// name resolves to one. The operator's own catalogue is.
func TestFetchGuarded(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer s.Close()
	o := Options{Location: s.URL + "/openapi.json", Catalog: s.URL + "/part.json"}
	f, err := newFetcher(&o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	if f.Guarded == f.Own {
		t.Error("nothing guards what is read")
	}
	f.Guarded, err = remote.New(remote.Config{Proxy: "none", Refuses: netip.Addr.IsLoopback}) // as LinkLocal does for others
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Fetch(t.Context(), o.Location); !errors.Is(err, remote.ErrRefused) {
		t.Errorf("the document: %v", err)
	}
	if _, err := f.Fetch(t.Context(), o.Catalog); err != nil {
		t.Errorf("the catalogue: %v", err)
	}
}

// A file that was just written is read again; one with a time far in the future is not.
func TestWatchFuture(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.yaml")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		ahead time.Duration
		want  bool
	}{{0, true}, {-time.Minute, false}, {time.Hour, false}} {
		at := time.Now().Add(test.ahead)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if got := watch(nil, []string{path}, stampFiles([]string{path})).filesChanged(); got != test.want {
			t.Errorf("written %v from now: to be read again: %t, want %t", test.ahead, got, test.want)
		}
	}
}

// A text that is no longer referenced is forgotten.
func TestWatchForgets(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer site.Close()
	f, err := newFetcher(&Options{Location: site.URL + "/a"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for _, path := range []string{"/a", "/b", "/c"} {
		if _, err := f.Fetch(t.Context(), site.URL+path); err != nil {
			t.Fatal(err)
		}
	}
	watch(f, []string{site.URL + "/a", "file.yaml", site.URL + "/c"}, moment{})
	if got, want := slices.Sorted(maps.Keys(f.seen)), []string{site.URL + "/a", site.URL + "/c"}; !slices.Equal(got, want) {
		t.Errorf("known are %s, want %s", got, want)
	}
}

package sse

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

// zipped compresses what is written to it, and what is flushed is sent.
type zipped struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (z *zipped) WriteHeader(status int) {
	z.Header().Set("Content-Encoding", "gzip")
	z.ResponseWriter.WriteHeader(status)
}

func (z *zipped) Write(b []byte) (int, error) { return z.z.Write(b) }

func (z *zipped) Flush() {
	_ = z.z.Flush()
	z.ResponseWriter.(http.Flusher).Flush()
}

// A stream that is compressed is read as it comes, and the messages go to the node that
// has it.
func TestUpstreamOdd(t *testing.T) {
	f := &fakePeer{}
	seen := make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- fmt.Sprint(r.Method, r.Header["Cookie"])
		if r.Method == http.MethodGet {
			http.SetCookie(w, &http.Cookie{Name: "AWSALB", Value: "node", Path: "/"})
			w = &zipped{w, gzip.NewWriter(w)}
		}
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	u, err := NewUpstream("fake", remote.Config{URL: s.URL + "/sse"}, conn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	for range 2 {
		up := adaptertest.Open(t, u, &adaptertest.Client{})
		call(t, up, `{}`).Result(t)
		_ = up.Close(t.Context())
		var got []string
		for len(seen) > 0 {
			got = append(got, <-seen)
		}
		if want := []string{"GET[]", "POST[AWSALB=node]", "POST[AWSALB=node]", "POST[AWSALB=node]"}; !slices.Equal(got, want) {
			t.Errorf("the requests came as %q, want %q", got, want)
		}
	}
}

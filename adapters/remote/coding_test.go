package remote

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
)

func read(t testing.TB, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

func zipped(text string) string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}

// Answers in gzip are read, whether they were asked for or not. The error names any other
// coding.
func TestCodings(t *testing.T) {
	for _, tc := range []struct {
		coding string
		status int
		zip    bool
		body   string
		want   string // of the body, or the error
	}{
		{"", 200, false, "plain", "plain"},
		{"identity", 200, false, "plain", "plain"},
		{"gzip", 200, true, strings.Repeat("text ", 1000), strings.Repeat("text ", 1000)},
		{"x-gzip", 404, true, "not here", "not here"},
		{"GZIP", 202, false, "", ""},
		{"br", 200, false, "…", "the Content-Encoding br,"},
		{"gzip, br", 200, false, "…", "a Content-Encoding that the bridge did not ask for"},
		{"br", 503, false, "…", ""},
		{"br", 202, false, "", ""},
		{"gzip", 200, false, "no gzip at all", "it is not gzip"},
		{"gzip", 200, false, zipped("text")[:20], "gzip that is cut"},
		{"gzip", 200, false, "\x1f\x8b", "gzip that is cut"},
		{"gzip", 200, false, zipped("")[:10] + "\xff\xff\xff\xff", "it is not gzip"},
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if tc.coding != "" {
				w.Header().Set("Content-Encoding", tc.coding)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tc.status)
			if !tc.zip {
				_, _ = io.WriteString(w, tc.body)
				return
			}
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, tc.body)
			_ = z.Close()
		})
		c := client(t, Config{URL: s.URL})
		for _, do := range []func(*http.Request) (*http.Response, error){c.Do, c.Stream} {
			res, err := do(c.Request(t.Context(), "POST", c.URL(), nil, []byte("{}")))
			got := ""
			if err == nil {
				var all []byte
				all, err = io.ReadAll(res.Body)
				_ = res.Body.Close()
				got = string(all)
				if tc.zip && res.Header.Get("Content-Encoding") != "" {
					t.Errorf("%q: the header is still there", tc.coding)
				}
			}
			switch {
			case err != nil && !strings.Contains(err.Error(), strings.TrimPrefix(tc.want, "it is ")):
				t.Errorf("%q with %d: %v, want %q", tc.coding, tc.status, err, tc.want)
			case err == nil && got != tc.want:
				t.Errorf("%q with %d: %q, want %q", tc.coding, tc.status, got, tc.want)
			}
		}
	}
}

// A stream is read as it comes: what was written is there before the stream ends.
func TestCodingStream(t *testing.T) {
	next := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.(http.Flusher).Flush()
		z := gzip.NewWriter(w)
		for _, event := range []string{"one", "two"} {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			_, _ = io.WriteString(z, event)
			_ = z.Flush()
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	})
	c := client(t, Config{URL: s.URL})
	for _, do := range []func(*http.Request) (*http.Response, error){c.Do, c.Stream} {
		res, err := do(c.Request(t.Context(), "GET", c.URL(), nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"one", "two"} {
			next <- struct{}{}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
				t.Errorf("read %q, %v, want %q", got, err, want)
			}
		}
		_ = res.Body.Close()
	}
}

package rest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/adapters/rest/internal/toolset"
)

// A catalogue's settings for calls apply within the limits of the configuration.
func TestPublishedBounds(t *testing.T) {
	for _, test := range []struct {
		name, tool string
		change     func(c *Config, o *Options)
		want       string // timeout, attempts, whether they are safe, and whether and how long answers are cached
		warning    string
	}{
		{"nothing said", `"request":"GET /"`, nil, "0s 0 false off 0s", ""},
		{"a shorter time", `"request":"GET /","timeout":"5s"`, nil, "5s 0 false off 0s", ""},
		{"a longer one", `"request":"GET /","timeout":"2m"`, nil, "2m0s 0 false off 0s", ""},
		{"too long", `"request":"GET /","timeout":"3h"`, nil, "10m0s 0 false off 0s", "timeout is 3h0m0s, and the server's max_timeout allows 10m0s"},
		{"without a longest", `"request":"GET /","timeout":"3h"`, func(_ *Config, o *Options) { o.MaxTimeout = 0 }, "1m0s 0 false off 0s", "allows 1m0s"},
		{"fewer attempts", `"request":"GET /","retry":2`, nil, "0s 2 false off 0s", ""},
		{"none", `"request":"GET /","retry":"off"`, nil, "0s 1 false off 0s", ""},
		{"too many", `"request":"GET /","retry":9`, nil, "0s 3 false off 0s", "retry is 9, and attempts allows 3"},
		{"as many as are allowed", `"request":"PUT /","retry":9`, func(c *Config, _ *Options) { c.Attempts = 9 }, "0s 9 false off 0s", ""},
		{"a change", `"request":"POST /","retry":2`, nil, "0s 1 false off 0s", "retry: a POST is not retried, unless the configuration has catalog: { retry: true }"},
		{"a change that says it is none", `"request":"POST /","retry":2,"annotations":{"readOnlyHint":true}`, nil, "0s 1 false off 0s", "retry: a POST is not retried"},
		{"a change with a key", `"request":"POST /","headers":{"idempotency-key":"x"}`, nil, "0s 1 false off 0s", ""},
		{"allowed", `"request":"POST /","retry":2`, allow, "0s 1 false off 0s", "retry: a repeated POST may take effect twice"},
		{"allowed and harmless", `"request":"POST /","retry":2,"annotations":{"idempotentHint":true}`, allow, "0s 2 true off 0s", ""},
		{"allowed with a key", `"request":"PATCH /","retry":2,"headers":{"Idempotency-Key":"x"}`, allow, "0s 2 false off 0s", ""},
		{"allowed and not said", `"request":"POST /","annotations":{"readOnlyHint":true}`, allow, "0s 0 false off 0s", ""},
		{"no cache", `"request":"GET /","cache":"10m"`, nil, "0s 0 false off 0s", "cache: the configuration has no cache for the API"},
		{"one of another tool", `"request":"GET /","cache":true`, func(c *Config, _ *Options) {
			yes := true
			c.Tools = append(c.Tools, toolset.Entry{Key: "own", Request: "GET /own", Cache: &yes})
		}, "0s 0 false off 0s", "cache: the configuration has no cache"},
		{"a cache", `"request":"GET /","cache":"10m"`, keeps, "0s 0 false on 10m0s", ""},
		{"a cache and off", `"request":"GET /","cache":"off"`, keeps, "0s 0 false off 0s", ""},
		{"as for the API", `"request":"GET /"`, keeps, "0s 0 false on 0s", ""},
		{"for too long", `"request":"GET /","cache":"1000h"`, keeps, "0s 0 false on 1h0m0s", "cache is 1000h0m0s, and 1h0m0s is allowed"},
		{"no GET", `"request":"PUT /","cache":true`, keeps, "0s 0 false on 0s", "cache is for GET"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Config{BaseURL: "https://flows.example.com", Catalog: Catalog{File: file(t, `[{"name":"t",`+test.tool+`}]`)}}
			o := quiet(Options{Timeout: time.Minute, MaxTimeout: 10 * time.Minute})
			if test.change != nil {
				test.change(&c, &o)
			}
			m := madeOf(t, c, o)
			one := m.Tools[len(m.Tools)-1]
			s, kept := one.Settings, "on"
			if s.Uncached {
				kept = "off"
			}
			if got := fmt.Sprintf("%v %d %t %s %v", s.Timeout, s.Attempts, s.Repeat, kept, s.KeepFor); got != test.want {
				t.Errorf("settings = %s, want %s", got, test.want)
			}
			if one.Annotations.ReadOnly && strings.Contains(test.tool, "idempotentHint") {
				t.Error("a tool that may be called again only reads")
			}
			warnings := fmt.Sprint(m.Warnings)
			if test.warning == "" && len(m.Warnings) > 0 || !strings.Contains(warnings, test.warning) {
				t.Errorf("warnings = %s, want %q", warnings, test.warning)
			}
		})
	}
}

func allow(c *Config, _ *Options) { c.Catalog.Retry = true }
func keeps(c *Config, _ *Options) { c.Cache = 1 << 20 }

// Settings of a catalogue's tool apply to its calls.
func TestPublishedSettings(t *testing.T) {
	var asked atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" { // the request may arrive after its call has ended
			<-r.Context().Done()
			return
		}
		asked.Add(1)
		switch r.URL.Path {
		case "/busy":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/long":
			fmt.Fprint(w, strings.Repeat("long ", 1000))
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"error":{"message":"no such flow"}}`)
		}
	}))
	t.Cleanup(api.Close)
	a := adapter(t, Config{BaseURL: api.URL, Cache: 1 << 20, Limits: Limits{Answer: 2 << 10}, Catalog: Catalog{File: file(t, `[
		{"name":"slow","request":"GET /slow","timeout":"1ms"},
		{"name":"busy","request":"POST /busy","retry":3,"headers":{"Idempotency-Key":"k"}},
		{"name":"kept","request":"GET /kept","cache":"1h"},
		{"name":"long","request":"GET /long","limits":{"answer":1024}},
		{"name":"toolong","request":"GET /long","limits":{"answer":9999999}},
		{"name":"fails","request":"GET /fails","error":{"when":"error","text":"error.message"}}]`)}}, Options{})
	up := connect(t, a, nil)
	for _, test := range []struct {
		tool, want string
		isError    bool
		asked      int32 // by two calls; 0 for any number
	}{
		{"slow", "GET /slow got no answer: the API did not answer in time (1ms)", true, 0},
		{"busy", "503 Service Unavailable from POST /busy", true, 2},
		{"kept", `{"error":{"message":"no such flow"}}`, false, 1},
		{"fails", "200 OK from GET /fails\nno such flow", true, 2},
		{"long", strings.Repeat("long ", 1000)[:1024], false, 2},
		{"toolong", strings.Repeat("long ", 1000)[:2048], false, 2},
	} {
		before := asked.Load()
		call(t, up, test.tool, "{}")
		text, isError := call(t, up, test.tool, "{}")
		if got := asked.Load() - before; text != test.want || isError != test.isError || test.asked > 0 && got != test.asked {
			t.Errorf("%s: %s (error: %t), %d requests, want %s and %d", test.tool, text, isError, got, test.want, test.asked)
		}
	}
	report, err := a.c.Inspect(t.Context(), "flows", quiet(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, e := range report.Explain("c.yaml", func(string) bool { return true }, func(s string) string { return s }) {
		for _, l := range e.Lines {
			if l.From == "catalogue" && strings.Contains("timeout retry cache error when answer", l.What) {
				got += e.Name + " " + l.What + ": " + l.Text + "\n"
			}
		}
	}
	if want := "slow timeout: 1ms\nbusy retry: off\nkept cache: as the answers allow, otherwise 1h0m0s\nlong answer: at most 1024 bytes\ntoolong answer: at most 2048 bytes\nfails error: error.message\nfails error when: error\n"; got != want {
		t.Errorf("explained:\n%s\nwant:\n%s", got, want)
	}
}

package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge"
)

// scripted is an adapter of which each Open ends with the next of its errors.
type scripted struct {
	name   string
	errs   []error
	opened *[]string // by all of a test
}

func (s *scripted) Open(context.Context, *bridge.Caller, bridge.Client) (bridge.Upstream, error) {
	*s.opened = append(*s.opened, s.name)
	err := s.errs[0]
	s.errs = s.errs[1:]
	return nil, err
}

// Which transport a server speaks is found out, remembered, and found out again when it changes; nothing but the
// server's own word for it leads from one to the other (protocol.md C2). The log says once which transport was found.
func TestEither(t *testing.T) {
	failed := func(public string, err error) error {
		return &bridge.Error{Server: "a", Kind: bridge.ErrUnavailable, Public: public, Err: err}
	}
	other := failed("it does not speak this (HTTP 405)", fmt.Errorf("HTTP 405: %w", ErrOtherTransport))
	down := failed("it is down", errors.New("connection refused"))
	for _, test := range []struct {
		name       string
		new, old   []error  // of the Opens of each
		want       []string // the Opens
		transports []string // after each Open of the whole
		errs       []string // of each Open of the whole: a part, or empty
	}{
		{
			"the first works", []error{nil, nil}, nil,
			[]string{"new", "new"}, []string{"streamable", "streamable"}, []string{"", ""},
		},
		{
			"the other works, and is remembered", []error{other}, []error{nil, nil},
			[]string{"new", "old", "old"}, []string{"sse", "sse"}, []string{"", ""},
		},
		{
			"it changes, twice", []error{other, nil, other}, []error{nil, other, nil},
			[]string{"new", "old", "old", "new", "new", "old"}, []string{"sse", "streamable", "sse"}, []string{"", "", ""},
		},
		{
			"what is out of order is no evidence (C2.7)", []error{down, nil}, nil,
			[]string{"new", "new"}, []string{"", "streamable"}, []string{"server a: it is down: connection refused", ""},
		},
		{
			"nor is it when it is known", []error{other}, []error{nil, down, nil},
			[]string{"new", "old", "old", "old"}, []string{"sse", "sse", "sse"}, []string{"", "it is down", ""},
		},
		{
			"neither works", []error{other}, []error{other},
			[]string{"new", "old"}, []string{""},
			[]string{"server a: Streamable HTTP: it does not speak this (HTTP 405); HTTP+SSE: it does not speak this (HTTP 405)"},
		},
		{
			"neither works, where one did", []error{nil, other}, []error{other},
			[]string{"new", "new", "old"}, []string{"streamable", "streamable"},
			[]string{"", "server a: it answered before, and may be starting: Streamable HTTP: it does not"},
		},
		{
			"the other fails otherwise", []error{other}, []error{down},
			[]string{"new", "old"}, []string{""}, []string{"Streamable HTTP: it does not speak this (HTTP 405); HTTP+SSE: it is down: connection refused"},
		},
		{
			"an error of another kind", []error{fmt.Errorf("odd: %w", ErrOtherTransport)}, []error{failed("it said no", nil)},
			[]string{"new", "old"}, []string{""}, []string{"Streamable HTTP: it could not be reached; HTTP+SSE: it said no: odd: "},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var opened []string
			var log bytes.Buffer
			a := &Adapter{Server: "a", Log: slog.New(slog.NewTextHandler(&log, nil)), Candidates: [2]Candidate{
				{"streamable", "Streamable HTTP", &scripted{"new", test.new, &opened}}, {"sse", "HTTP+SSE", &scripted{"old", test.old, &opened}},
			}}
			for i, want := range test.errs {
				_, err := a.Open(t.Context(), nil, nil)
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("Open %d = %v, want %q", i+1, err, want)
				}
				if err != nil && strings.Count(err.Error(), "HTTP 405") > len(test.old)+len(test.new) {
					t.Errorf("Open %d = %v, which says what happened more than once", i+1, err)
				}
				if _, ok := errors.AsType[*bridge.Error](err); err != nil && (!ok || !errors.Is(err, bridge.ErrUnavailable)) {
					t.Errorf("Open %d = %T, want a *bridge.Error of the kind ErrUnavailable", i+1, err)
				}
				if got := a.Transport(); got != test.transports[i] {
					t.Errorf("after Open %d the transport is %q, want %q", i+1, got, test.transports[i])
				}
			}
			if fmt.Sprint(opened) != fmt.Sprint(test.want) {
				t.Errorf("opened %v, want %v", opened, test.want)
			}
			// The first candidate is expected, and needs no line.
			changes := slices.DeleteFunc(append([]string{"streamable"}, test.transports...), func(s string) bool { return s == "" })
			found := len(slices.Compact(changes)) - 1
			if n := strings.Count(log.String(), "transport found"); n != found || found > 0 && !strings.Contains(log.String(), "server=a transport=HTTP+SSE") {
				t.Errorf("log = %q, want %d lines with the transport found", log.String(), found)
			}
		})
	}
}

// When there is no time left, the other transport is not tried.
func TestEitherLate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var opened []string
	other := &bridge.Error{Server: "a", Kind: bridge.ErrUnavailable, Err: ErrOtherTransport}
	a := &Adapter{Server: "a", Candidates: [2]Candidate{{Adapter: &scripted{"new", []error{other}, &opened}}, {Adapter: &scripted{"old", nil, &opened}}}}
	if _, err := a.Open(ctx, nil, nil); !errors.Is(err, ErrOtherTransport) || len(opened) != 1 {
		t.Errorf("Open = %v after %v", err, opened)
	}
}

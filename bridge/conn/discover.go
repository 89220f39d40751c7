package conn

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Verdict is what an answer to server/discover says about the era of the server (protocol.md C1, C2).
type Verdict int

// The values of Verdict.
const (
	// NoVerdict means that the answer is an error that says nothing about the era. Most likely the server is a legacy
	// one: the answer to initialize decides.
	NoVerdict Verdict = iota
	// SaysModern means that the server speaks a modern revision that the bridge speaks, too.
	SaysModern
	// SaysLegacy means that the server names its revisions, and that they are legacy ones.
	SaysLegacy
	// SaysOther means that the server speaks only modern revisions that the bridge does not speak.
	SaysOther
)

// Discover sends server/discover on a new connection, on behalf of from. If the server is modern, the connection
// becomes a modern one, and Discover returns the server's greeting. The error is that of a request without an answer.
// With SaysOther it names the server's revisions.
func Discover(ctx context.Context, c *Conn, from *bridge.Caller) (*bridge.Greeting, Verdict, error) {
	ask := func() (*jsonrpc.Message, error) {
		return c.Call(ctx, &bridge.Request{
			Message:   from.Request("server/discover", nil),
			From:      from,
			Handshake: true,
		})
	}
	m, err := ask()
	if err == nil && m.Error != nil && refusesOurs(m.Error) { // once more, with a revision that the server names
		m.Release()
		m, err = ask()
	}
	if err != nil {
		return nil, NoVerdict, err
	}
	defer m.Release()
	if m.Error != nil {
		v := Classify(m.Error)
		if refusesOurs(m.Error) {
			v = SaysOther // initialize must not follow
		}
		return nil, v, c.foreign(v, gjson.GetBytes(m.Error, "data.supported"))
	}
	result := rawjson.OneLine(m.Whole())
	supported := gjson.GetBytes(result, "supportedVersions")
	if !supported.IsArray() {
		return nil, NoVerdict, nil
	}
	v := revisions(supported)
	if v != SaysModern {
		return nil, v, c.foreign(v, supported)
	}
	return c.modernize(result), SaysModern, nil
}

// foreign returns the error about a server that speaks only unknown revisions. For other verdicts it returns nil.
func (c *Conn) foreign(v Verdict, supported gjson.Result) error {
	if v != SaysOther {
		return nil
	}
	var names []string
	for _, r := range supported.Array()[:min(len(supported.Array()), 8)] {
		names = append(names, fmt.Sprintf("%.20q", r.Str))
	}
	return &bridge.Error{
		Server: c.server,
		Kind:   bridge.ErrUnavailable,
		Public: "it supports only revisions that the bridge does not speak: " + strings.Join(names, ", "),
	}
}

// refusesOurs reports whether an error refuses a request because of its revision, but lists that revision as supported.
func refusesOurs(raw []byte) bool {
	return gjson.GetBytes(raw, "code").Int() == jsonrpc.CodeUnsupportedVersion && revisions(gjson.GetBytes(raw, "data.supported")) == SaysModern
}

// Classify returns the verdict of an error that answers server/discover, or of another error that refuses a revision.
func Classify(raw []byte) Verdict {
	supported := gjson.GetBytes(raw, "data.supported")
	if gjson.GetBytes(raw, "code").Int() != jsonrpc.CodeUnsupportedVersion || !supported.IsArray() {
		return NoVerdict
	}
	if v := revisions(supported); v != SaysModern {
		return v
	}
	return NoVerdict // the error refuses a revision that it lists as supported
}

func revisions(list gjson.Result) Verdict {
	v := NoVerdict
	for _, r := range list.Array() {
		switch {
		case slices.Contains(era.Modern(), r.Str):
			return SaysModern
		case era.IsLegacy(r.Str):
			v = SaysLegacy
		case era.IsModern(r.Str) && v == NoVerdict:
			v = SaysOther
		}
	}
	return v
}

// modernize makes the connection a modern one, and returns the greeting. result is the result of server/discover.
func (c *Conn) modernize(result []byte) *bridge.Greeting {
	c.mu.Lock()
	c.modern = true
	c.mu.Unlock()
	return greeting(era.LatestModern, result)
}

// DiscoverByListing opens a connection to a server that has neither server/discover nor initialize. If the server
// answers the request for a list, it is a modern server with the lists that it answers (protocol.md C2.4, D2.2).
// Otherwise DiscoverByListing returns nil.
func DiscoverByListing(ctx context.Context, c *Conn, from *bridge.Caller) (*bridge.Greeting, error) {
	caps := []byte("{}")
	found := false
	for _, k := range []string{"tools", "prompts", "resources"} {
		m, err := c.Call(ctx, &bridge.Request{
			Message:   from.Request(k+"/list", nil),
			From:      from,
			Handshake: true,
		})
		if err != nil {
			return nil, err
		}
		if gjson.GetBytes(m.Result, k).IsArray() && gjson.GetBytes(m.Result, "resultType").Exists() {
			caps, found = rawjson.Set(caps, k, []byte("{}")), true
		}
		m.Release()
	}
	if !found {
		return nil, nil
	}
	return c.modernize([]byte(`{"resultType":"complete","supportedVersions":["` + era.LatestModern + `"],"capabilities":` + string(caps) + `,"ttlMs":0,"cacheScope":"private"}`)), nil
}

// Era is the setting which eras the bridge uses with a server.
type Era string

// The values of Era.
const (
	// EraAuto detects the era. If the server speaks both eras, each client gets its own era (protocol.md C5).
	EraAuto Era = "auto"
	// EraLegacy means that the bridge never sends server/discover.
	EraLegacy Era = "legacy"
	// EraModern means that the bridge never sends initialize.
	EraModern Era = "modern"
)

// Eras remembers which eras a server speaks, for all connections to it. Its methods may be called concurrently.
type Eras struct {
	only Era

	mu    sync.Mutex // guards the rest
	known map[Era]bool
}

// NewEras returns Eras without knowledge. If only is EraLegacy or EraModern, no other era is tried; "" means EraAuto.
func NewEras(only Era) *Eras {
	return &Eras{only: cmp.Or(only, EraAuto), known: map[Era]bool{}}
}

// Order returns the era to try first for a connection on behalf of from. other reports whether the other era may be
// tried next. The first is the caller's own era, unless the server is known to speak only the other one.
func (e *Eras) Order(from *bridge.Caller) (first Era, other bool) {
	if e.only != EraAuto {
		return e.only, false
	}
	first, second := EraLegacy, EraModern
	if from.Modern() {
		first, second = second, first
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if speaks, known := e.known[first]; known && !speaks && e.known[second] {
		return second, true
	}
	return first, true
}

// Learn records whether the server speaks an era.
func (e *Eras) Learn(which Era, speaks bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known[which] = speaks
}

// Forget removes what is known about an era, after a failure that says nothing about it.
func (e *Eras) Forget(which Era) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.known, which)
}

// Speaks reports whether the server speaks an era, and whether that is known.
func (e *Eras) Speaks(which Era) (speaks, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	speaks, known = e.known[which]
	return speaks, known
}

// capped returns the params of initialize with the revision most, if they have a newer one. An empty most changes
// nothing.
func capped(params []byte, most string) []byte {
	asked := gjson.GetBytes(params, "protocolVersion").Str
	if most == "" || strings.Compare(asked, most) <= 0 {
		return params
	}
	return rawjson.Set(params, "protocolVersion", []byte(rawjson.Quote(most)))
}

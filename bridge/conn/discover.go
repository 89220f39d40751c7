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

// Verdict is the era that an answer to server/discover shows (protocol.md C1, C2).
type Verdict int

// The verdicts.
const (
	// NoVerdict: the answer is an error that shows no era. The server is most likely a legacy one:
	// initialize decides.
	NoVerdict Verdict = iota
	// SaysModern: the server speaks a modern revision that the bridge speaks.
	SaysModern
	// SaysLegacy: it names its revisions, and they are legacy ones.
	SaysLegacy
	// SaysOther: the server speaks only modern revisions that the bridge does not speak.
	SaysOther
)

// Discover sends server/discover on a new connection, on behalf of from. If the server is a modern
// one, the connection becomes a modern one, and Discover returns the server's declaration. An error
// means that no answer came, or, with SaysOther, names the server's revisions.
func Discover(ctx context.Context, c *Conn, from *bridge.Caller) (*bridge.Greeting, Verdict, error) {
	ask := func() (*jsonrpc.Message, error) {
		return c.Call(ctx, &bridge.Request{
			Message:   from.Request("server/discover", nil),
			From:      from,
			Handshake: true,
		})
	}
	m, err := ask()
	if err == nil && m.Error != nil && refusesOurs(m.Error) { // once more, with a revision that it names
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
			v = SaysOther // no initialize follows
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

// foreign returns the error about a server whose revisions the bridge does not speak; nil with
// other verdicts.
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

// refusesOurs reports whether an error names the very revision for which it refuses the request.
func refusesOurs(raw []byte) bool {
	return gjson.GetBytes(raw, "code").Int() == jsonrpc.CodeUnsupportedVersion && revisions(gjson.GetBytes(raw, "data.supported")) == SaysModern
}

// Classify returns the verdict of an error that answered server/discover, or of any other error
// that refuses a revision.
func Classify(raw []byte) Verdict {
	supported := gjson.GetBytes(raw, "data.supported")
	if gjson.GetBytes(raw, "code").Int() != jsonrpc.CodeUnsupportedVersion || !supported.IsArray() {
		return NoVerdict
	}
	if v := revisions(supported); v != SaysModern {
		return v
	}
	return NoVerdict // it refuses a revision that it names as supported
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

// modernize makes the connection a modern one; result is the server's declaration.
func (c *Conn) modernize(result []byte) *bridge.Greeting {
	c.mu.Lock()
	c.modern = true
	c.mu.Unlock()
	return greeting(era.LatestModern, result)
}

// DiscoverByListing opens a connection to a server that has neither server/discover nor initialize.
// If the server answers any list, it is a modern one with these lists (protocol.md C2.4, D2.2).
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

// Era is a setting: the eras that the bridge speaks with a server.
type Era string

// The values of Era.
const (
	// EraAuto detects the era of the server. If it speaks both, each client gets its own era
	// (protocol.md C5).
	EraAuto Era = "auto"
	// EraLegacy never sends server/discover.
	EraLegacy Era = "legacy"
	// EraModern never sends initialize.
	EraModern Era = "modern"
)

// Eras stores the eras that a server speaks, for all of its connections. Its methods may be
// called concurrently.
type Eras struct {
	only Era

	mu    sync.Mutex // guards the rest
	known map[Era]bool
}

// NewEras returns Eras with nothing known. If only is neither EraAuto nor "", no other era is
// spoken.
func NewEras(only Era) *Eras {
	return &Eras{only: cmp.Or(only, EraAuto), known: map[Era]bool{}}
}

// Order returns the era to try first for a connection on behalf of from. It also reports whether
// the other era may be tried next. The caller's own era is first, unless the server is known not to
// speak it.
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

// Forget removes the knowledge of an era, after a failure that shows nothing.
func (e *Eras) Forget(which Era) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.known, which)
}

// Speaks returns whether the server speaks an era, and whether that is known.
func (e *Eras) Speaks(which Era) (speaks, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	speaks, known = e.known[which]
	return speaks, known
}

// capped returns the params of initialize with the revision lowered to most, if
// that is not empty.
func capped(params []byte, most string) []byte {
	asked := gjson.GetBytes(params, "protocolVersion").Str
	if most == "" || strings.Compare(asked, most) <= 0 {
		return params
	}
	return rawjson.Set(params, "protocolVersion", []byte(rawjson.Quote(most)))
}

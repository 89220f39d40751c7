package lower

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

const (
	codeURLNeeded = -32042 // 2025-11-25, URL elicitation required
	maxID         = 256    // bytes of an elicitationId
	maxURLRounds  = 5      // rounds of one request
	maxURLs       = 16     // URLs of one round
	maxURLsOpen   = 256    // URLs whose completion a connection awaits
	urlPatience   = 5 * time.Second
)

// urlsNeeded turns the server's error that URLs must be visited first into questions for the client. The client's next
// request repeats the call (protocol.md D1.5, R-139). The bridge stores nothing for that. urlsNeeded returns nil for
// other errors.
func (t *Translator) urlsNeeded(v *request, l *legacy, m *jsonrpc.Message) *jsonrpc.Message {
	r := v.r
	if gjson.GetBytes(m.Error, "code").Int() != codeURLNeeded || !era.MayAsk(r.Method) {
		return nil
	}
	asked := gjson.GetBytes(m.Error, "data.elicitations").Array()
	if len(asked) == 0 || len(asked) > maxURLs {
		return nil
	}
	if !gjson.GetBytes(r.From.Capabilities, "elicitation.url").Exists() {
		return jsonrpc.NewError(nil, jsonrpc.CodeMissingCapability, "the server needs a visit to a URL, and the client has not declared elicitation.url",
			[]byte(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`))
	}
	if v.rounds >= maxURLRounds {
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, bridge.OverLimit("the server asks for visits to URLs too often", maxURLRounds), nil)
	}
	var b strings.Builder
	b.WriteString(`"resultType":"input_required","inputRequests":{`)
	state := state{
		Kind:    stateURL,
		Method:  r.Method,
		Digest:  digest(r.Message),
		Expires: time.Now().Add(parkTTL).Unix(),
		Round:   v.rounds + 1,
	}
	for i, e := range asked {
		if !e.IsObject() || e.Get("url").Type != gjson.String {
			return nil
		}
		raw := rawjson.SetFirst(rawjson.OneLine([]byte(e.Raw)), "mode", []byte(`"url"`))
		params, no := era.Question("elicitation/create", raw, l.Revision, era.LatestModern, r.From.Capabilities, func() string { return "" })
		if no != nil {
			return nil
		}
		id := e.Get("elicitationId").Str
		if len(id) > maxID { // the state would exceed its limit
			id = ""
		}
		state.IDs = append(state.IDs, id)
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + keyPrefix + strconv.Itoa(i+1) + `":{"method":"elicitation/create","params":` + string(params) + `}`)
	}
	token := t.s.sealed(r, state)
	if len(token) > maxState {
		state.IDs = make([]string, len(state.IDs)) // the ids only shorten the wait
		token = t.s.sealed(r, state)
	}
	t.awaitURLs(state.IDs)
	b.WriteString(`},"requestState":"` + token + `"`)
	return l.enveloped(b.String())
}

// awaitURLs notes ids, so that urlDone records when these elicitations are complete. If maxURLsOpen are noted, each
// further id displaces an arbitrary noted id, whose completion is then not recorded.
func (t *Translator) awaitURLs(ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.urls == nil {
		t.urls = map[string]chan struct{}{}
	}
	for _, id := range ids {
		if id == "" || t.urls[id] != nil {
			continue
		}
		for other := range t.urls {
			if len(t.urls) < maxURLsOpen {
				break
			}
			delete(t.urls, other)
		}
		t.urls[id] = make(chan struct{})
	}
}

// urlDone records that an elicitation is complete.
func (t *Translator) urlDone(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	done := t.urls[id]
	if done == nil {
		return
	}
	select {
	case <-done:
	default:
		close(done)
	}
}

var errPatience = errors.New("waited for long enough")

// checkURLs reads the client's answers about the URLs to visit. If an answer is malformed, or declines or cancels a
// visit, checkURLs returns the answer to the request. Otherwise, checkURLs waits up to urlPatience for the server to
// confirm the visits, and returns nil.
func (t *Translator) checkURLs(ctx context.Context, l *legacy, r *bridge.Request, again *Round) *jsonrpc.Message {
	state := again.ours
	for i := range state.IDs {
		key := keyPrefix + strconv.Itoa(i+1)
		given := again.answer(key)
		if !given.Exists() {
			continue // only the server can decide whether it still needs the visit
		}
		if what := era.WellFormedAnswer("elicitation/create", []byte(given.Raw)); what != "" {
			return jsonrpc.InvalidParams("inputResponses." + key + ": " + what)
		}
		how := "declined"
		switch given.Get("action").Str {
		case "accept":
			continue
		case "cancel":
			how = "cancelled"
		}
		text := "The URL that the server needs was not visited: the request was " + how + "."
		if r.Method != "tools/call" {
			return jsonrpc.NewError(nil, jsonrpc.CodeInternal, text, nil)
		}
		return l.enveloped(complete + `,"content":[{"type":"text","text":` + rawjson.Quote(text) + `}],"isError":true`)
	}
	short, stop := context.WithTimeoutCause(ctx, urlPatience, errPatience)
	defer stop()
	for _, id := range state.IDs {
		t.mu.Lock()
		done := t.urls[id]
		t.mu.Unlock()
		if done == nil {
			continue
		}
		select {
		case <-done:
			t.mu.Lock()
			delete(t.urls, id)
			t.mu.Unlock()
		case <-short.Done():
			return nil // the server decides whether the visits are complete
		}
	}
	return nil
}

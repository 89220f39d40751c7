package lift

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// These constants bound a call with endless questions, and set the pauses before a call is repeated without a
// question to the client.
const (
	maxRounds    = 10
	maxTalk      = time.Hour
	longestState = 256 << 10              // bytes of a requestState
	soonest      = 250 * time.Millisecond // the first pause, if the server sent only a requestState
	latestWait   = 5 * time.Second
	firstLook    = 2 * time.Second // the first pause before the server gets the same answer about a URL again
	lastLook     = 30 * time.Second
)

// conversation is the state of a call with questions.
type conversation struct {
	*call
	rounds int                // rounds with questions, or with only a requestState
	states int                // consecutive rounds with only a requestState
	agreed map[string]*agreed // URLs that the client accepted to visit
}

// agreed is a URL that the client's user accepted to visit.
type agreed struct {
	answer []byte // the client's answer
	id     []byte // elicitationId for the client, raw
	looks  int    // how often the server has asked for the URL since
}

// questions is the server's request for input.
type questions struct {
	state []byte // requestState, raw; nil without one
	all   []*question
}

type question struct {
	key []byte // the server's key of the question, raw
	q   *jsonrpc.Message
	url string // to visit; empty for other questions
}

// converse continues a call that the server answered with questions. converse asks the client on the stream of its
// request and repeats the call with the answers (protocol.md D2.4). converse returns the first answer without
// questions.
func (c *call) converse(ctx context.Context, m *jsonrpc.Message) (*jsonrpc.Message, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTalk, &bridge.Error{Server: c.l.o.Server, Kind: bridge.ErrTimeout,
		Public: c.r.Method + " was not done within " + maxTalk.String() + " of questions and answers"})
	defer cancel()
	t := &conversation{call: c, agreed: map[string]*agreed{}}
	for {
		q, no := c.questions(m)
		m.Release()
		var more []byte
		if no == nil {
			var err error
			if more, no, err = t.round(ctx, q); err != nil {
				return nil, err
			}
		}
		if no != nil {
			t.over(nil)
			return no, nil
		}
		c.back.repeat()
		var err error
		if m, err = c.send(ctx, more); err != nil {
			return nil, err
		}
		if m.Error != nil || era.ResultType(m) != era.ResultInput {
			t.over(nil)
			return m, nil
		}
	}
}

// questions reads the server's questions for this client. no is the error of the call if the client cannot be
// asked.
func (c *call) questions(m *jsonrpc.Message) (w *questions, no *jsonrpc.Message) {
	result := gjson.ParseBytes(m.Result)
	w = &questions{}
	if state := result.Get("requestState"); state.Exists() && state.Type != gjson.Null {
		switch {
		case state.Type != gjson.String:
			return nil, c.broken("its requestState is not a string")
		case len(state.Raw) > longestState:
			return nil, c.broken(bridge.OverLimit("its requestState is too long", longestState))
		}
		w.state = []byte(state.Raw)
	}
	asked := result.Get("inputRequests")
	switch {
	case asked.Type == gjson.Null: // some write null for nothing
		asked = gjson.Parse("{}")
	case !asked.IsObject():
		return nil, c.broken("its inputRequests is not an object")
	}
	seen := map[string]bool{}
	asked.ForEach(func(key, one gjson.Result) bool {
		switch {
		case seen[key.Str]:
			no = c.broken("two of its inputRequests have the same key")
		case len(w.all) >= bridge.MaxQuestions:
			no = c.broken(bridge.OverLimit("it asks too many questions at once", bridge.MaxQuestions))
		default:
			seen[key.Str] = true
			var q *question
			if q, no = c.question(one); no == nil {
				q.key = []byte(key.Raw)
				w.all = append(w.all, q)
			}
		}
		return no == nil
	})
	if no == nil && len(w.all) == 0 && w.state == nil {
		no = c.broken("it asks for input without inputRequests and requestState")
	}
	return w, no
}

// question makes the request to the client. If the client has not declared the capability, the server is at fault
// (D8.6). If the client's revision cannot express the question, the server is not at fault (D8.7).
func (c *call) question(one gjson.Result) (q *question, no *jsonrpc.Message) {
	method, params := one.Get("method").Str, one.Get("params")
	switch method {
	case "elicitation/create", "sampling/createMessage", "roots/list":
	default:
		return nil, c.broken("it asks for " + rawjson.Quote(method[:min(len(method), 40)]) + ", which is no question of the protocol")
	}
	if params.Exists() && !params.IsObject() {
		return nil, c.broken("it asks " + method + " with params that are not an object")
	}
	var raw []byte
	if params.Exists() {
		raw = []byte(params.Raw)
	}
	from := c.l.from
	declared := era.ModernCapabilities(from.Capabilities, from.Revision)
	if _, no := era.Question(method, raw, era.LatestModern, era.LatestModern, declared, uuid.NewString); no != nil {
		return nil, c.broken("it asks " + method + ": " + no.Message)
	}
	raw, cannot := era.Question(method, raw, era.LatestModern, from.Revision, from.Capabilities, uuid.NewString)
	if cannot != nil {
		return nil, c.undone(method, cannot.Message, gjson.Result{})
	}
	q = &question{q: jsonrpc.NewRequest(method, raw)}
	if method == "elicitation/create" && gjson.GetBytes(raw, "mode").Str == "url" {
		q.url = gjson.GetBytes(raw, "url").Str
	}
	return q, nil
}

// round gets the answers to the questions, and returns them as members of params. no is the error of the call if
// it cannot continue.
func (c *conversation) round(ctx context.Context, w *questions) (more []byte, no *jsonrpc.Message, err error) {
	c.over(w)
	var fresh []*question
	answers := map[*question][]byte{}
	wait := time.Duration(0)
	for _, q := range w.all {
		had := c.agreed[q.url]
		if q.url == "" || had == nil {
			fresh = append(fresh, q)
			continue
		}
		// The user has agreed to the URL before, and has visited it or is about to. The server gets the same answer
		// again, after a wait that doubles with each round, up to lastLook.
		answers[q] = had.answer
		wait = max(wait, min(firstLook<<min(had.looks, 8), lastLook))
		had.looks++
	}
	if len(w.all) == 0 {
		wait = min(soonest<<min(c.states, 8), latestWait)
		c.states++
	} else {
		c.states = 0
	}
	if len(fresh) > 0 || len(w.all) == 0 {
		if c.rounds++; c.rounds > maxRounds {
			return nil, c.broken(bridge.OverLimit("it keeps asking for input", maxRounds)), nil
		}
	}
	over := time.After(wait)
	if no, err = c.ask(ctx, fresh, answers); no != nil || err != nil {
		return nil, no, err
	}
	if wait > 0 {
		select {
		case <-over:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	return members(w, answers), nil, nil
}

// members returns the members of the next attempt's params.
func members(w *questions, answers map[*question][]byte) []byte {
	var out []byte
	for _, q := range w.all {
		if out == nil {
			out = []byte(`"inputResponses":{`)
		} else {
			out = append(out, ',')
		}
		out = append(append(append(out, q.key...), ':'), answers[q]...)
	}
	if out != nil {
		out = append(out, "},"...)
	}
	if w.state != nil {
		out = append(append(append(out, `"requestState":`...), w.state...), ',')
	}
	return out
}

// ask sends the questions to the client, all at once, and waits for the answers.
func (c *conversation) ask(ctx context.Context, questions []*question, answers map[*question][]byte) (no *jsonrpc.Message, err error) {
	if len(questions) == 0 {
		return nil, nil
	}
	to := c.r.Back
	if to == nil {
		to = c.l.to
	}
	type reply struct {
		q *question
		a *jsonrpc.Message
	}
	replies := make(chan reply, len(questions))
	for _, q := range questions {
		withdraw := to.Ask(q.q, func(m *jsonrpc.Message) {
			b := *m
			b.ID = []byte("0") // the bridge's own errors have no id
			replies <- reply{q, b.Clone()}
		})
		if withdraw != nil {
			defer withdraw("") // does nothing for answered questions
		}
	}
	for range questions {
		var r reply
		select {
		case r = <-replies:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if ctx.Err() != nil { // a session that ends answers its questions itself
			return nil, context.Cause(ctx)
		}
		answer, why := c.answer(r.q.q.Method, r.a)
		if why != nil {
			return why, nil
		}
		answers[r.q] = answer
		if r.q.url != "" && gjson.GetBytes(answer, "action").Str == "accept" {
			c.agreed[r.q.url] = &agreed{answer: answer, id: []byte(gjson.GetBytes(r.q.q.Params, "elicitationId").Raw)}
		}
	}
	return nil, nil
}

// answer returns the client's answer for the server. If the client refused, or its answer is malformed, an
// elicitation counts as cancelled. Any other question then ends the call with an error, because the protocol cannot
// pass errors to the server.
func (c *conversation) answer(method string, m *jsonrpc.Message) ([]byte, *jsonrpc.Message) {
	code, what := gjson.Result{}, ""
	result := m.Result
	if m.Error != nil {
		code, what = gjson.GetBytes(m.Error, "code"), gjson.GetBytes(m.Error, "message").String()
	} else if what = era.WellFormedAnswer(method, result); what == "" {
		var no *era.Refusal
		if result, no = era.Answer(method, result, c.l.from.Revision, era.LatestModern); no == nil {
			return result, nil
		}
		what = no.Message
	}
	if method == "elicitation/create" {
		return []byte(`{"action":"cancel"}`), nil
	}
	return nil, c.undone(method, what, code)
}

// undone returns the answer of a call whose client did not fulfil the server's request (D8.5). code is the code of
// the client's error, if any.
func (c *call) undone(method, what string, code gjson.Result) *jsonrpc.Message {
	text := "the server asked the client for " + method + ", which failed: " + what
	if c.r.Method == "tools/call" {
		return jsonrpc.NewResult(nil, []byte(`{"content":[{"type":"text","text":`+rawjson.Quote(text)+`}],"isError":true}`))
	}
	data := []byte(`{"bridge":"client_refused"}`)
	if code.Type == gjson.Number {
		data = []byte(`{"bridge":"client_refused","originalCode":` + code.Raw + `}`)
	}
	return jsonrpc.NewError(nil, jsonrpc.CodeInternal, text, data)
}

// over notifies the client of URLs that the server no longer asks to visit. A nil w means that the server asks for
// none.
func (c *conversation) over(w *questions) {
	for url, had := range c.agreed {
		if w != nil && slices.ContainsFunc(w.all, func(q *question) bool { return q.url == url }) {
			continue
		}
		delete(c.agreed, url)
		if c.r.Back != nil && len(had.id) > 0 {
			m := jsonrpc.NewNotification("notifications/elicitation/complete", append(append([]byte(`{"elicitationId":`), had.id...), '}'))
			c.r.Back.Notify(m.Clone())
		}
	}
}

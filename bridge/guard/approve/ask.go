package approve

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/arguments"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/sanitize"
)

// questionKey is the key of the bridge's question in inputRequests.
const questionKey = "bridge_approval"

// maxShown bounds each text in a question to a client, in bytes.
const maxShown = 500

// yesOnce, yesSession and denied are the answers that a person chooses from.
const (
	yesOnce    = "Yes, this once"
	yesSession = "Yes, for this session"
	denied     = "No"
)

// choices are the outcomes of the answers.
var choices = map[string]Outcome{yesOnce: Once, yesSession: ForSession, denied: Denied}

// question returns the params of the elicitation.
func (c *call) question() []byte {
	answers := []string{yesOnce, denied}
	if c.remembers() {
		answers = []string{yesOnce, yesSession, denied}
	}
	return []byte(`{"message":` + rawjson.Quote(c.message()) +
		`,"requestedSchema":{"type":"object","properties":{"answer":{"type":"string","title":"Allow the call?","enum":` +
		string(rawjson.List(answers)) + `}},"required":["answer"]}}`)
}

// message describes the call to the person. The names and the arguments come from the server and the model: each is
// quoted or JSON, so that none of them can look like a sentence of the bridge.
func (c *call) message() string {
	args := "none"
	if shown := c.shown(); len(shown) > 0 {
		compact := string(rawjson.Compact(shown))
		args = visible(sanitize.Short(compact, maxShown))
		if len(compact) > maxShown {
			args += fmt.Sprintf(" (the first %d of %d bytes)", maxShown, len(compact))
		}
	}
	return fmt.Sprintf("Allow this call?\nServer: %s\nTool: %s\nArguments: %s", c.a.s.Name, quoted(c.r.Name()), args)
}

// visible returns JSON with escapes in place of the characters that a person does not see, or that act on a screen.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsGraphic(r) && !unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// shown returns the arguments without the values that the operator hides; nil for none.
func (c *call) shown() []byte {
	args, _ := arguments.Of(c.r.Shown())
	return args
}

// quoted quotes the beginning of a foreign name, without characters that act on a screen.
func quoted(name string) string {
	return strconv.QuoteToGraphic(sanitize.Text(sanitize.Short(name, maxShown)))
}

// outcome returns what an answer to the elicitation means. All but a chosen yes is a no.
func outcome(result string) Outcome {
	r := gjson.Parse(result)
	if r.Get("action").Str != "accept" {
		return Denied
	}
	chosen, ok := choices[r.Get("content.answer").Str]
	if !ok {
		return Denied
	}
	return chosen
}

// canAnswer reports whether the client of a call to a modern server offers elicitation.
func (c *call) canAnswer() bool {
	_, no := era.Question("elicitation/create", c.question(), era.LatestModern, era.LatestModern, c.r.From.Meta().Capabilities, nil)
	return no == nil
}

// ask returns the answer that asks the client of a call to a modern server.
func (c *call) ask() *jsonrpc.Message {
	m := jsonrpc.NewResult([]byte("0"), []byte(`{"resultType":"input_required","inputRequests":{"`+questionKey+
		`":{"method":"elicitation/create","params":`+string(c.question())+
		`}},"requestState":`+rawjson.Quote(c.seal(false, "", c.rule.Timeout))+`}`))
	return m.Clone() // parsed, so that wrappers find its type
}

// answered continues a call to a modern server with the client's answer.
func (c *call) answered(ctx context.Context, answer string) (*jsonrpc.Message, error) {
	return c.settle(ctx, Decision{Asked: AskClient, Outcome: outcome(answer)})
}

// askClient asks the client of a call to a legacy server. asked is false if the client cannot be asked. An error means
// that the call has ended.
func (c *call) askClient(ctx context.Context) (o Outcome, asked bool, err error) {
	if c.r.Back == nil {
		return "", false, nil
	}
	replies := make(chan *jsonrpc.Message, 1)
	withdraw := c.r.Back.Ask(jsonrpc.NewRequest("elicitation/create", c.question()), func(m *jsonrpc.Message) {
		b := *m
		b.ID = []byte("0") // answers of the bridge itself have no id
		replies <- b.Clone()
	})
	if withdraw == nil {
		withdraw = func(string) {}
	}
	late := time.NewTimer(c.rule.Timeout)
	defer late.Stop()
	select {
	case m := <-replies:
		if ctx.Err() != nil { // a session that ends answers its questions itself
			return "", false, c.cancelled(ctx)
		}
		if m.Error != nil {
			return "", false, nil
		}
		return outcome(string(m.Result)), true, nil
	case <-late.C:
		withdraw("nobody answered in time")
		return TimedOut, true, nil
	case <-ctx.Done():
		withdraw("the call was cancelled")
		return "", false, c.cancelled(ctx)
	}
}

// cancelled records that the call ended before a decision, and returns why.
func (c *call) cancelled(ctx context.Context) error {
	c.record(Decision{Outcome: Cancelled})
	return context.Cause(ctx)
}

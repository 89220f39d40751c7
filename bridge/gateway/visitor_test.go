package gateway

import (
	"context"
	"regexp"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/bridge/bridge/bridgetest"
)

// visitor is a client without a session.
type visitor struct {
	server    string // empty means the only one
	principal string
	caps      string
	meta      string // further members of _meta, each with a comma before it
	mode      ToolsMode
}

const ableVisitor = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`

// visiting is one request of such a client.
type visiting struct {
	stream
	cancel context.CancelCauseFunc
	done   chan struct{}
	answer string
	err    error
}

// ask makes a request in a goroutine. params are without braces.
func (v visitor) ask(t testing.TB, g *gateway, id, method, params string) *visiting {
	t.Helper()
	if params != "" {
		params += ","
	}
	if v.caps == "" {
		v.caps = ableVisitor
	}
	m := bridgetest.Parse(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":{`+params+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+v.caps+v.meta+`}}}`)
	one := &visiting{done: make(chan struct{})}
	var ctx context.Context
	ctx, one.cancel = context.WithCancelCause(context.Background())
	s, no := NewStateless(v.server, v.principal, m)
	if no != nil {
		one.answer = bridgetest.Text(no)
		close(one.done)
		return one
	}
	s.Back, s.Tools = &one.stream, v.mode
	go func() {
		defer close(one.done)
		defer one.cancel(nil)
		a, err := g.Call(ctx, m, *s)
		one.answer, one.err = bridgetest.Text(a), err
		one.close() // nothing may come behind the answer
	}()
	return one
}

// over reports whether the request has its answer, when all is quiet.
func (v *visiting) over() bool {
	synctest.Wait()
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}

// call makes a request and waits for its answer.
func (v visitor) call(t testing.TB, g *gateway, method, params string) string {
	t.Helper()
	visiting := v.ask(t, g, "1", method, params)
	<-visiting.done
	return visiting.answer
}

var statePattern = regexp.MustCompile(`"requestState":"([^"]*)"`)

// stateOf returns the requestState in an answer.
func stateOf(t testing.TB, answer string) string {
	t.Helper()
	found := statePattern.FindStringSubmatch(answer)
	if found == nil {
		t.Fatalf("no requestState in %s", answer)
	}
	return found[1]
}

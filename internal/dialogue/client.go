package dialogue

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
)

// Client is a client of a dialogue.
type Client struct {
	Name   string
	Caller *bridge.Caller

	wire Wire
	news news

	mu        sync.Mutex // guards the rest
	heard     []string
	asked     []question
	cancelled map[string]bool // by id: a client ignores the answer
}

// question is an open request of a server.
type question struct{ id, method string }

// newClient returns the client with that name, revision and principal.
func newClient(words []string, capabilities string) *Client {
	return &Client{Name: words[0], cancelled: map[string]bool{}, Caller: &bridge.Caller{
		Principal:    words[2],
		Revision:     words[1],
		Capabilities: []byte(capabilities),
		Params:       fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":%q,"version":"1"}}`, words[1], capabilities, words[0]),
	}}
}

// begin makes the handshake.
func (c *Client) begin() {
	if c.Caller.Modern() {
		return
	}
	c.wire.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":%s}`, c.Caller.Params))
}

// Hear takes a message for the client, as JSON on one line.
func (c *Client) Hear(line string) {
	m := gjson.Parse(line)
	id, method := m.Get("id"), m.Get("method").Str
	defer c.news.tell()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case method == "" && c.cancelled[id.Str]:
		return
	case method == "notifications/cancelled":
		i := slices.IndexFunc(c.asked, func(q question) bool { return q.id == m.Get("params.requestId").Raw })
		if i < 0 {
			break
		}
		c.heard = append(c.heard, "withdraw "+c.asked[i].method)
		c.asked = slices.Delete(c.asked, i, i+1)
		return
	case method != "" && id.Exists():
		c.asked = append(c.asked, question{id.Raw, method})
		c.heard = append(c.heard, "ask "+said(method, m.Get("params").Raw))
		return
	case m.Get("error").Exists():
		c.heard = append(c.heard, id.Str+" error "+m.Get("error").Raw)
		return
	case method == "":
		c.heard = append(c.heard, id.Str+" result "+m.Get("result").Raw)
		if id.Str == "init" {
			go c.wire.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		}
		return
	}
	params := m.Get("params").Raw
	on := m.Get(`params._meta.io\.modelcontextprotocol/subscriptionId`)
	if on.Exists() {
		params = subscription.ReplaceAllString(params, "")
		params = strings.NewReplacer(`"_meta":{},`, "", `,"_meta":{}`, "", `"_meta":{}`, "").Replace(params)
		method = "on " + on.Str + " " + method
	}
	if params == "{}" {
		params = ""
	}
	c.heard = append(c.heard, said(method, params))
}

var subscription = regexp.MustCompile(`"io\.modelcontextprotocol/subscriptionId":"[^"]*",?|,"io\.modelcontextprotocol/subscriptionId":"[^"]*"`)

// said is a message without its id.
func said(method, params string) string { return strings.TrimSpace(method + " " + params) }

// Gone takes the end of the session's connection.
func (c *Client) Gone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = append(c.heard, "gone")
}

func (c *Client) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard := c.heard
	c.heard = nil
	return heard
}

func (c *Client) write(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	method, payload, _ := strings.Cut(rest, " ")
	switch {
	case line == "ends":
		c.wire.End()
	case verb == "cancel":
		c.mu.Lock()
		c.cancelled[rest] = true
		c.mu.Unlock()
		c.wire.Cancel(`"` + rest + `"`)
	case verb == "answer", verb == "fail":
		id, err := c.answered(method)
		if err != nil {
			return err
		}
		c.wire.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%q:%s}`, id, member(verb), payload))
	case strings.HasPrefix(verb, "notifications/"):
		c.wire.Send(message("", verb, rest))
	default:
		if c.Caller.Modern() {
			meta := c.Caller.Meta()
			meta.LogLevel = era.LogLevel([]byte(gjson.Get(payload, "_meta").Raw))
			payload = string(era.Inject([]byte(orObject(payload)), meta.Members()))
		}
		c.wire.Send(message(`"`+verb+`"`, method, payload))
	}
	return nil
}

// member is where an answer stands.
func member(verb string) string {
	if verb == "fail" {
		return "error"
	}
	return "result"
}

// message is a request, or a notification without an id.
func message(id, method, params string) string {
	if id != "" {
		id = `"id":` + id + `,`
	}
	if params != "" {
		params = `,"params":` + params
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0",%s"method":%q%s}`, id, method, params)
}

// answered removes the oldest open question of that method.
func (c *Client) answered(method string) (id string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.asked, func(q question) bool { return q.method == method })
	if i < 0 {
		return "", fmt.Errorf("no question %s is open", method)
	}
	id = c.asked[i].id
	c.asked = slices.Delete(c.asked, i, i+1)
	return id, nil
}

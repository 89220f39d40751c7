package dialogue

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/era"
)

// Server is a server of a dialogue. It answers handshakes and pings by itself, and does not show them.
type Server struct {
	Name string
	// Streams means that each call has a stream of its own in memory, too.
	Streams bool

	news news

	mu     sync.Mutex // guards the rest
	offer  offer
	shows  string // connections, life or pings
	down   bool   // no connection can be opened
	conns  []*Conn
	got    []string
	open   []request // of the bridge, the oldest first
	former []request // that the bridge has cancelled
	asked  []request // of the server
	asks   int
	tokens []string // progress tokens of the bridge
}

// offer is what a server says of itself.
type offer struct{ revision, capabilities string }

// Revision returns the revision that the server speaks.
func (s *Server) Revision() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offer.revision
}

// become changes what the server says of itself.
func (s *Server) become(revision, capabilities string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offer = offer{revision, capabilities}
}

// request is an open request on a connection.
type request struct {
	on         *Conn
	id, method string
	token      string
	name       string // of the tool
}

// Conn is a connection of a bridge to a Server.
type Conn struct {
	s *Server
	// say sends a message to the bridge. about is the raw id of the request that the message is about, or empty.
	say func(line, about string)
	end func()
}

// Connect adds a connection. say sends a message to the bridge, on the stream of the request about, raw JSON, unless
// about is empty. end ends the connection.
func (s *Server) Connect(say func(line, about string), end func()) *Conn {
	c := &Conn{s: s, say: say, end: end}
	defer s.news.tell()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	if s.shown("connections") || s.shown("life") {
		s.got = append(s.got, "connects")
	}
	return c
}

// shown reports whether the dialogue shows that of the server.
func (s *Server) shown(what string) bool { return s.shows == what }

// Down reports whether no connection can be opened.
func (s *Server) Down() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// Greeting returns the result of the server's handshake.
func (s *Server) Greeting() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if modern(s.offer.revision) {
		return fmt.Sprintf(`{"resultType":"complete","supportedVersions":[%q],"capabilities":%s,"ttlMs":0,"cacheScope":"private",`+
			`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":%q,"version":"1"}}}`, s.offer.revision, s.offer.capabilities, s.Name)
	}
	return fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"serverInfo":{"name":%q,"version":"1"}}`, s.offer.revision, s.offer.capabilities, s.Name)
}

// Take takes a message of the bridge, as JSON on one line. Its answer, if the server has one by itself, is sent before
// Take returns.
func (c *Conn) Take(line string) {
	m := gjson.Parse(line)
	id, method := m.Get("id").Raw, m.Get("method").Str
	greets := method == "server/discover" && modern(c.s.Revision()) || method == "initialize" && !modern(c.s.Revision())
	switch {
	case greets:
		c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, c.s.Greeting()), id)
	case method == "ping" && !c.s.shown("pings"):
		c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id), id)
	case method == "server/discover" || method == "initialize":
		c.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, id), id)
	case method == "notifications/initialized":
	case method == "notifications/cancelled":
		c.Cancelled(m.Get("params.requestId").Raw)
	default:
		c.s.receive(c, m, id, method)
	}
}

func (s *Server) receive(c *Conn, m gjson.Result, id, method string) {
	defer s.news.tell()
	s.mu.Lock()
	defer s.mu.Unlock()
	if method == "" {
		i := slices.IndexFunc(s.asked, func(q request) bool { return q.on == c && q.id == id })
		if i < 0 {
			s.got = append(s.got, "unexpected "+m.Raw)
			return
		}
		verb, payload := "answer", m.Get("result").Raw
		if payload == "" {
			verb, payload = "fail", m.Get("error").Raw
		}
		s.got = append(s.got, verb+" "+s.asked[i].method+" "+payload)
		s.asked = slices.Delete(s.asked, i, i+1)
		return
	}
	params, token := m.Get("params").Raw, m.Get(`params._meta.progressToken`).Raw
	if token != "" {
		if !slices.Contains(s.tokens, token) {
			s.tokens = append(s.tokens, token)
		}
		n := slices.Index(s.tokens, token) + 1
		params = strings.Replace(params, `"progressToken":`+token, fmt.Sprintf(`"progressToken":{t%d}`, n), 1)
	}
	if id != "" {
		s.open = append(s.open, request{c, id, method, token, m.Get("params.name").Str})
	}
	s.got = append(s.got, said(method, params))
}

// Cancelled tells the server that a request, named by its raw id, is cancelled.
func (c *Conn) Cancelled(id string) {
	defer c.s.news.tell()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	i := slices.IndexFunc(c.s.open, func(r request) bool { return r.on == c && r.id == id })
	if i < 0 {
		return // answered meanwhile
	}
	if c.s.open[i].method != "ping" { // which the bridge gives up together with the connection
		c.s.got = append(c.s.got, "cancel "+c.s.open[i].method)
	}
	c.s.former = append(c.s.former, c.s.open[i])
	c.s.open = slices.Delete(c.s.open, i, i+1)
}

// Closed tells the server that the bridge has closed the connection.
func (c *Conn) Closed() {
	defer c.s.news.tell()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if slices.Contains(c.s.conns, c) && c.s.shown("life") {
		c.s.got = append(c.s.got, "closes")
	}
	c.gone()
}

// gone forgets the connection. The caller holds s.mu.
func (c *Conn) gone() {
	c.s.conns = slices.DeleteFunc(c.s.conns, func(o *Conn) bool { return o == c })
	c.s.open = slices.DeleteFunc(c.s.open, func(r request) bool { return r.on == c })
	c.s.former = slices.DeleteFunc(c.s.former, func(r request) bool { return r.on == c })
	c.s.asked = slices.DeleteFunc(c.s.asked, func(r request) bool { return r.on == c })
}

func (s *Server) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}

// named matches the names that a server can write.
var named = regexp.MustCompile(`\{t(\d+)\}|\{id ([^}]+)\}`)

func (s *Server) write(line string) error {
	s.mu.Lock()
	about, missing := "", ""
	line = named.ReplaceAllStringFunc(line, func(name string) string {
		m := named.FindStringSubmatch(name)
		if m[2] == "" {
			if n, _ := strconv.Atoi(m[1]); n <= len(s.tokens) {
				return s.tokens[n-1]
			}
		} else if i := find(s.open, m[2]); i >= 0 {
			about = s.open[i].id
			return about
		}
		missing = name
		return name
	})
	if missing != "" {
		s.mu.Unlock()
		return fmt.Errorf("no open request has %s", missing)
	}
	say, text, about, err := s.says(line, about)
	s.mu.Unlock()
	if err == nil {
		say(text, about)
	}
	return err
}

// find returns the place of the oldest request of a method, or of the newest if an exclamation mark follows; -1 if there
// is none.
func find(all []request, method string) int {
	method, newest := strings.CutSuffix(method, "!")
	for i := range all {
		if newest {
			i = len(all) - 1 - i
		}
		if all[i].method == method {
			return i
		}
	}
	return -1
}

// says returns who sends a line, and the message. The caller holds s.mu.
func (s *Server) says(line, about string) (say func(line, about string), text, on string, err error) {
	verb, rest, _ := strings.Cut(line, " ")
	method, payload, _ := strings.Cut(rest, " ")
	if line == "down" || line == "up" {
		s.down = line == "down"
		return func(string, string) {}, "", "", nil
	}
	if len(s.conns) == 0 {
		return nil, "", "", fmt.Errorf("it has no connection")
	}
	newest := s.conns[len(s.conns)-1]
	switch verb {
	case "about":
		i := slices.IndexFunc(s.open, func(r request) bool { return r.name == method || r.method == method })
		if i < 0 {
			return nil, "", "", fmt.Errorf("no call of %s is open", method)
		}
		say, text, _, err = s.says(payload, "")
		return say, text, s.open[i].id, err
	case "dies":
		newest.gone()
		return func(string, string) { newest.end() }, "", "", nil
	case "answer", "fail":
		from := &s.open
		if find(s.open, method) < 0 {
			from = &s.former
		}
		i := find(*from, method)
		if i < 0 {
			return nil, "", "", fmt.Errorf("no request %s is open", method)
		}
		r := (*from)[i]
		*from = slices.Delete(*from, i, i+1)
		return r.on.say, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%q:%s}`, r.id, member(verb), payload), r.id, nil
	case "ask":
		s.asks++
		q := request{on: newest, id: fmt.Sprintf(`"q%d"`, s.asks), method: method}
		s.asked = append(s.asked, q)
		return newest.say, message(q.id, method, payload), s.oldest(newest), nil
	case "withdraw":
		for i := len(s.asked) - 1; i >= 0; i-- {
			if q := s.asked[i]; q.method == method {
				s.asked = slices.Delete(s.asked, i, i+1)
				return q.on.say, message("", "notifications/cancelled", `{"requestId":`+q.id+`}`), s.oldest(q.on), nil
			}
		}
		return nil, "", "", fmt.Errorf("no question %s is open", method)
	}
	text = message("", verb, rest)
	token := gjson.Get(text, "params.progressToken").Raw
	i := slices.IndexFunc(s.open, func(r request) bool { return token != "" && r.token == token })
	switch {
	case i >= 0:
		return s.open[i].on.say, text, s.open[i].id, nil
	case about == "" && modern(s.offer.revision):
		about = s.oldest(newest)
	}
	return newest.say, text, about, nil
}

// oldest returns the id of the oldest open request on a connection, or "". The caller holds s.mu.
func (s *Server) oldest(on *Conn) string {
	i := slices.IndexFunc(s.open, func(r request) bool { return r.on == on && r.method != era.Listen })
	if i < 0 {
		return ""
	}
	return s.open[i].id
}

// Package dialogue plays written dialogues between MCP clients and servers. A dialogue says what each party writes, and
// what each party gets. The package of a subject plays its dialogues in memory, and package integration plays the
// same files over each pair of transports. The subject session is played in integration only.
//
// A folder is a subject. What is special to a revision is in a folder of that revision below: adding a revision is adding
// folders. A dialogue is a txtar file with a comment and these sections, in the order in which they happen:
//
//	-- options --                        settings as NAME=VALUE, one on a line: show=connections shows what
//	                                     connects to servers, show=life what closes, too, and show=pings pings, which are not
//	                                     answered then; with streams=yes a server has a stream for each call in memory, too;
//	                                     with order=any the lines that a party got may be in any order; not=sse,child
//	                                     excludes these transports to the server
//	-- server NAME REVISION --           a server, and its capabilities; later: what it is from the next connection on
//	-- client NAME REVISION PRINCIPAL -- a client, and its capabilities; PRINCIPAL may be missing. A client of a legacy
//	                                     revision makes its handshake: the answer is "init result …"
//	-- NAME --                           what the party writes
//	-- NAME got --                       what the party got since the last such section
//	-- after DURATION --                 time passes
//
// Each line is one message. Ids and the members that all messages have are left out:
//
//	ID METHOD PARAMS         a request of a client; ID is its id
//	METHOD PARAMS            a notification, or the request that a server got
//	ID result RESULT         the answer that a client got, or ID error ERROR
//	on ID METHOD PARAMS      a notification that a client got for its subscription ID
//	ask METHOD PARAMS        a request of a server
//	answer METHOD RESULT     answers the oldest open request of that method, or fail METHOD ERROR; if there is none, the
//	                         oldest that was cancelled; METHOD! is the newest
//	cancel ID                a client cancels its request; the server gets cancel METHOD
//	withdraw METHOD          a server cancels the newest of its requests of that method; the client gets the same
//	about NAME …             what a server writes is about the open call of the tool NAME, or of the method NAME
//	dies                     the connection of a server ends
//	down                     no connection to the server can be opened, until up
//	gone                     a client's session ends by itself; over a transport, that is not compared
//	ends                     a client ends its session
//
// Answers that a party got directly after each other may be in any order. In what a party got, … stands for any text within a line. Texts that the bridge makes up have names: {s1} for a
// requestState, {c1} for a nextCursor, {u1} for a UUID, {t1} for a progress token, and {NAME} for the members of _meta that describe the client
// NAME. A party can write these names, too. A server writes {id METHOD} for the id of the oldest open request of that
// method.
//
// The flag -update-dialogues writes what the parties got into the files.
package dialogue

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/mcp-bridge/bridge/bridge/era"
)

var update = flag.Bool("update-dialogues", false, "write into the dialogues what the parties got")

// Bridge is what stands between the clients and the servers of a dialogue.
type Bridge interface {
	// Connect makes the connection of a client. Messages for the client go to c.Hear.
	Connect(c *Client) Wire
	// Close ends everything.
	Close()
}

// Wire is the connection of a client to a Bridge.
type Wire interface {
	// Send sends a message, as JSON on one line.
	Send(line string)
	// Cancel cancels the request with that id, raw JSON.
	Cancel(id string)
	// End ends the client's session.
	End()
}

// Dialogue is one dialogue.
type Dialogue struct {
	Subject, Name string
	Options       map[string]string
	Servers       []*Server
	Clients       []*Client

	t       *testing.T
	file    string
	archive *txtar.Archive
	bridge  Bridge
	loose   bool // the order of messages on several streams does not count
	news    news // nil in a bubble
	names   []string
}

// news has a value after a party got something or can write something new. Nobody waits for a nil one.
type news chan struct{}

func (n news) tell() {
	select {
	case n <- struct{}{}:
	default:
	}
}

// patience is how long a dialogue outside a bubble waits for a message that does not come.
const patience = time.Minute

// Folders returns the subjects.
func Folders(t *testing.T) (all []string) {
	entries, err := os.ReadDir(testdata())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// testdata returns the folder of the subjects, for tests of other packages.
func testdata() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "testdata")
}

// Play plays all dialogues of a subject, each in a bubble. between makes what stands between the parties, or returns nil
// if it cannot play the dialogue.
func Play(t *testing.T, subject string, between func(t *testing.T, d *Dialogue) Bridge) {
	play(t, subject, func(d *Dialogue) { d.bubble(between) })
}

// PlayLoose is Play for transports with several streams to a client: the order of messages within a section does not
// count.
func PlayLoose(t *testing.T, subject string, between func(t *testing.T, d *Dialogue) Bridge) {
	play(t, subject, func(d *Dialogue) {
		d.loose = true
		d.bubble(between)
	})
}

// PlayLive is PlayLoose outside a bubble, for processes: a party waits until it can write its line, such as an answer,
// and a section waits until the party has got its lines. What a party does not get shows only at the end.
func PlayLive(t *testing.T, subject string, between func(t *testing.T, d *Dialogue) Bridge) {
	play(t, subject, func(d *Dialogue) {
		d.loose = true
		d.news = make(news, 1)
		d.play(between)
	})
}

func play(t *testing.T, subject string, run func(d *Dialogue)) {
	folder := filepath.Join(testdata(), subject)
	files, _ := filepath.Glob(filepath.Join(folder, "*.txtar"))
	ofRevisions, _ := filepath.Glob(filepath.Join(folder, "*", "*.txtar"))
	files = append(files, ofRevisions...)
	if len(files) == 0 {
		t.Fatalf("no dialogues about %s", subject)
	}
	for _, file := range files {
		d := &Dialogue{
			Subject: subject,
			Name:    filepath.ToSlash(strings.TrimSuffix(strings.TrimPrefix(file, folder+string(filepath.Separator)), ".txtar")),
			Options: map[string]string{},
			file:    file,
		}
		t.Run(d.Name, func(t *testing.T) {
			d.t = t
			var err error
			if d.archive, err = txtar.ParseFile(file); err != nil {
				t.Fatal(err)
			}
			run(d)
		})
	}
}

func (d *Dialogue) bubble(between func(t *testing.T, d *Dialogue) Bridge) {
	synctest.Test(d.t, func(t *testing.T) {
		d.t = t
		d.play(between)
	})
}

// until waits until done reports true, and reports whether done did. In a bubble, done is asked once, after all that
// can happen.
func (d *Dialogue) until(done func() bool) bool {
	if d.news == nil {
		synctest.Wait()
		return done()
	}
	for late := time.After(patience); !done(); {
		select {
		case <-d.news:
		case <-late:
			return false
		}
	}
	return true
}

func (d *Dialogue) play(between func(t *testing.T, d *Dialogue) Bridge) {
	rest := d.declare()
	if d.bridge = between(d.t, d); d.bridge == nil {
		return // said by between
	}
	for i := range rest {
		d.step(&rest[i])
	}
	d.until(func() bool { return true })
	for _, c := range d.Clients {
		d.leftOver(c.Name, d.take(c.Name))
	}
	for _, s := range d.Servers {
		d.leftOver(s.Name, d.take(s.Name))
	}
	d.bridge.Close()
	if *update && !d.loose {
		if err := os.WriteFile(d.file, txtar.Format(d.archive), 0o644); err != nil {
			d.t.Error(err)
		}
	}
}

// declare takes the sections before the first message.
func (d *Dialogue) declare() []txtar.File {
	files := d.archive.Files
	for i, f := range files {
		words, body := strings.Fields(f.Name), strings.TrimSpace(string(f.Data))
		switch {
		case f.Name == "options":
			for line := range strings.Lines(body) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				d.Options[name] = value
			}
		case words[0] == "server" && len(words) == 3:
			s := &Server{Name: words[1], Streams: d.Options["streams"] != "", shows: d.Options["show"], news: d.news}
			s.become(words[2], orObject(body))
			d.Servers = append(d.Servers, s)
		default:
			return files[i:]
		}
	}
	return nil
}

// Pauses reports whether time passes in the dialogue.
func (d *Dialogue) Pauses() bool {
	return slices.ContainsFunc(d.archive.Files, func(f txtar.File) bool { return strings.HasPrefix(f.Name, "after ") })
}

// ClientRevisions returns the revisions of the clients.
func (d *Dialogue) ClientRevisions() (all []string) {
	for _, f := range d.archive.Files {
		if words := strings.Fields(f.Name); words[0] == "client" {
			all = append(all, words[2])
		}
	}
	return all
}

// Duration returns an option that is a duration; 0 if it is missing.
func (d *Dialogue) Duration(option string) time.Duration {
	v, _ := time.ParseDuration(d.Options[option])
	return v
}

// Number returns an option that is a number; 0 if it is missing.
func (d *Dialogue) Number(option string) int {
	n, _ := strconv.Atoi(d.Options[option])
	return n
}

func orObject(text string) string {
	if text == "" {
		return "{}"
	}
	return text
}

func (d *Dialogue) step(f *txtar.File) {
	d.t.Helper()
	words, body := strings.Fields(f.Name), strings.TrimSpace(string(f.Data))
	switch {
	case words[0] == "client" && len(words) >= 3:
		c := newClient(append(words, "")[1:4], orObject(body))
		c.news = d.news
		d.Clients = append(d.Clients, c)
		c.wire = d.bridge.Connect(c)
		c.begin()
	case words[0] == "server" && len(words) == 3:
		d.server(words[1]).become(words[2], orObject(body))
	case words[0] == "after" && len(words) == 2:
		pause, err := time.ParseDuration(words[1])
		if err != nil {
			d.t.Fatal(err)
		}
		time.Sleep(pause)
	case len(words) == 2 && words[1] == "got":
		var lines []string
		d.until(func() bool {
			lines = append(lines, d.take(words[0])...)
			return d.holds(f, strings.Join(lines, "\n"))
		})
		d.compare(f, strings.Join(lines, "\n"))
	case len(words) == 1:
		for line := range strings.Lines(body) {
			d.write(words[0], d.real(strings.TrimSpace(line)))
		}
	default:
		d.t.Fatalf("section %q: what is that?", f.Name)
	}
}

func (d *Dialogue) write(name, line string) {
	write := d.writer(name)
	var err error
	if !d.until(func() bool { err = write(line); return err == nil }) {
		d.t.Errorf("%s writes %s: %v", name, line, err)
	}
}

// writer returns what writes a line of a party.
func (d *Dialogue) writer(name string) func(line string) error {
	if c := d.client(name); c != nil {
		return c.write
	} else if s := d.server(name); s != nil {
		return s.write
	}
	d.t.Fatalf("nobody is called %q", name)
	return nil
}

// take returns what the party got since the last take.
func (d *Dialogue) take(name string) (lines []string) {
	if c := d.client(name); c != nil {
		lines = c.take()
	} else if s := d.server(name); s != nil {
		lines = s.take()
	} else {
		d.t.Fatalf("nobody is called %q", name)
	}
	for i := range lines {
		lines[i] = d.named(lines[i])
	}
	return lines
}

func (d *Dialogue) client(name string) *Client {
	if i := slices.IndexFunc(d.Clients, func(c *Client) bool { return c.Name == name }); i >= 0 {
		return d.Clients[i]
	}
	return nil
}

func (d *Dialogue) server(name string) *Server {
	if i := slices.IndexFunc(d.Servers, func(s *Server) bool { return s.Name == name }); i >= 0 {
		return d.Servers[i]
	}
	return nil
}

// made matches the texts that the bridge makes up.
var made = regexp.MustCompile(`"(requestState|nextCursor)":"([^"]*)"|([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})`)

// named replaces texts that the bridge made up by names.
func (d *Dialogue) named(line string) string {
	for _, m := range made.FindAllStringSubmatch(line, -1) {
		kind, text := "s", m[2]
		switch {
		case m[3] != "":
			kind, text = "u", m[3]
		case m[1] == "nextCursor":
			kind = "c"
		}
		d.name(kind, text)
	}
	for i := 0; i < len(d.names); i += 2 {
		line = strings.ReplaceAll(line, d.names[i+1], d.names[i])
	}
	for _, c := range d.Clients {
		line = strings.ReplaceAll(line, string(c.Caller.Meta().Members()), "{"+c.Name+"}")
	}
	return line
}

// name gives a text the next name of that kind. Short texts are those of a server of the dialogue.
func (d *Dialogue) name(kind, text string) {
	if len(text) < 16 || slices.Contains(d.names, text) {
		return
	}
	n := 1
	for slices.Contains(d.names, fmt.Sprintf("{%s%d}", kind, n)) {
		n++
	}
	d.names = append(d.names, fmt.Sprintf("{%s%d}", kind, n), text)
}

// real reverses named.
func (d *Dialogue) real(line string) string { return strings.NewReplacer(d.names...).Replace(line) }

func (d *Dialogue) compare(f *txtar.File, got string) {
	d.t.Helper()
	switch {
	case d.holds(f, got):
	case *update && !d.loose:
		f.Data = []byte(got + "\n")
		if got == "" {
			f.Data = nil
		}
	default:
		d.t.Errorf("%s:\ngot\n%s\nwant\n%s", f.Name, got, f.Data)
	}
}

// holds reports whether a party got what the section says.
func (d *Dialogue) holds(f *txtar.File, got string) bool {
	want := strings.TrimSpace(string(f.Data))
	return matches(sorted(got), sorted(want)) || (d.loose || d.Options["order"] == "any") && matchesLoosely(got, want)
}

func (d *Dialogue) leftOver(name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	if *update && !d.loose {
		d.archive.Files = append(d.archive.Files, txtar.File{Name: name + " got", Data: []byte(strings.Join(lines, "\n") + "\n")})
		return
	}
	d.t.Errorf("%s got besides:\n%s", name, strings.Join(lines, "\n"))
}

// answers matches lines of answers that follow each other. Their order is that of the goroutines of the calls.
var answers = regexp.MustCompile(`(?m)(^\S+ (result|error) .*\n?)+`)

func sorted(text string) string {
	return answers.ReplaceAllStringFunc(text, func(run string) string {
		lines := strings.Split(strings.TrimSuffix(run, "\n"), "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n") + run[len(strings.TrimSuffix(run, "\n")):]
	})
}

func matches(got, want string) bool {
	return regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*") + `$`).MatchString(got)
}

// matchesLoosely reports whether each line of want has a line of got, in any order.
func matchesLoosely(got, want string) bool {
	lines := strings.Split(got, "\n")
	for _, w := range strings.Split(want, "\n") {
		if w == "gone" {
			continue // a transport ends
		}
		i := slices.IndexFunc(lines, func(line string) bool { return matches(line, w) })
		if i < 0 {
			return false
		}
		lines = slices.Delete(lines, i, i+1)
	}
	return len(lines) == 0 || len(lines) == 1 && lines[0] == ""
}

// modern reports whether a revision has no handshake.
func modern(revision string) bool { return era.IsModern(revision) }

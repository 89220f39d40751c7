package server

import (
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/mcp-bridge/bridge/bridge/server/internal/placement"
	"github.com/mcp-bridge/bridge/bridge/session"
	"github.com/mcp-bridge/bridge/config"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/wiretest"
)

// Whole bridges with a store between them, and clients whose requests come to any of them. What
// happens to instances, network and store happens in any order. After each step a session
// has one owner at most (S-010), no call was made twice (S-021), and each request has one
// answer at most, which is its own (S-020). 404 is for sessions that may be gone (S-027). When all
// works again, each session that should live is served by each instance, and nothing is left.
//
// One game is played with child processes at each instance, and one with those at workers, which are killed and cut off as
// fronts are (S-051). -rapid.checks plays more, and -rapid.seed others. In one more, a session begins at an instance that
// has just lost the store, and is asked for elsewhere until the others count that instance out, and later (S-027).
func TestWhole(t *testing.T) {
	t.Parallel()
	checks := "1"
	if testing.Short() {
		checks = "5" // of which rapid plays a fifth
	}
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.seed": "20261123", "rapid.nofailfile": "true"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue { // of no other test here
			if err := f.Value.Set(value); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("unwritten", func(t *testing.T) {
		t.Parallel()
		steps := []int{21, 0} // the store refuses the first instance, and a session begins there
		for range 50 {
			steps = append(steps, 3+1*32, 30+3*32) // a call at the second, and a pause
		}
		synctest.Test(t, func(t *testing.T) {
			if said := playWhole(t, 0, steps); said != "" {
				t.Error(said)
			}
		})
	})
	for _, workers := range []int{0, 2} {
		t.Run(fmt.Sprint("workers ", workers), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				steps := rapid.SliceOfN(rapid.IntRange(0, 1<<16-1), 30, 60).Draw(rt, "steps")
				said := ""
				synctest.Test(t, func(t *testing.T) { said = playWhole(t, workers, steps) })
				if said != "" {
					rt.Fatal(said)
				}
			})
		})
	}
}

var wholeKeys = []string{"the-key-of-alice-1234", "the-key-of-bob-123456"}

// wholeClient is a client with a session.
type wholeClient struct {
	n, who int
	id     string
	// firm: the store has it, and an instance is taken for dead only if it is.
	firm bool
	// gone: it may be gone, as its only instance was killed, or it was ended.
	gone bool
	// loose: only an instance may have it that others may not reach. It comes back.
	loose   bool
	deleted bool
	next    int // the next request's id
}

// wholeCall is a request of a client.
type wholeCall struct {
	of        *wholeClient
	id        int
	tag       string // of a call
	tool      string
	at        *wholeOne
	reply     *wiretest.Reply
	again     *wiretest.Reply // that resumes the stream
	cancelled bool
	late      bool // it was made after the end of the session
	judged    bool
}

// wholePlay is one game.
type wholePlay struct {
	w       *world
	workers int                // where the child processes are; 0 if each instance has its own
	servers []*wiretest.Server // of each instance
	clients []*wholeClient
	calls   []*wholeCall
	made    map[string]int  // by tag, how often the servers were asked
	said    map[string]bool // by event, the questions that are answered
	unsure  time.Time       // until then two may have the same (S-010)
	fault   string
	tags    int
}

func playWhole(t *testing.T, workers int, steps []int) string {
	w := newWorld(t)
	p := &wholePlay{w: w, workers: workers, made: map[string]int{}, said: map[string]bool{}}
	for range 3 {
		p.start(p.role())
	}
	for range workers {
		p.start(cluster.RoleWorker)
	}
	time.Sleep(wholeLease)
	for at, x := range steps {
		p.step(x%32, x/32)
		synctest.Wait()
		p.look()
		if p.fault != "" {
			w.end()
			return fmt.Sprintf("step %d (%d, %d): %s", at, x%32, x/32, p.fault)
		}
	}
	p.settle()
	p.finish()
	w.end()
	if p.fault == "" && len(w.store.Records()) > 0 {
		p.fault = fmt.Sprintf("%d records are left", len(w.store.Records()))
	}
	if p.fault != "" {
		return "at the end: " + p.fault
	}
	return ""
}

// role is that of the instances that clients use.
func (w *wholePlay) role() string {
	if w.workers > 0 {
		return cluster.RoleFront
	}
	return cluster.RoleAll
}

// fronts returns the instances that clients use.
func (w *wholePlay) fronts() []*wholeOne { return w.living(w.role()) }

func (w *wholePlay) living(role string) []*wholeOne {
	return slices.DeleteFunc(w.w.living(), func(o *wholeOne) bool { return o.s.Config().Cluster.Role != role })
}

// start starts an instance, with child processes of its own if there are no workers.
func (w *wholePlay) start(role string) *wholeOne {
	c := instanceIn()
	c.Cluster.Role = role
	s := config.DefaultServer("files", "")
	s.Stdio = &config.Stdio{Command: "in memory"}
	s.Timeout = 30 * time.Second // what ends a call whose question was answered, where the answer could not be sent on
	c.Servers = append(c.Servers, s)
	c.Access = []config.Access{{Name: "alice", Token: wholeKeys[0]}, {Name: "bob", Token: wholeKeys[1]}}
	c.Drain = 4 * time.Second
	f := &wiretest.Server{}
	w.servers = append(w.servers, f)
	reach := reaching(f)
	if w.workers > 0 {
		reach = func(own *server, item *config.Server) backend {
			return own.atWorkers(item, placement.Local{Adapter: f, MaxProcesses: item.MaxChildren})
		}
	}
	return w.w.start(c, slog.New(slog.DiscardHandler), reach)
}

func (w *wholePlay) wrong(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// do makes a request of a client to an instance.
func (w *wholePlay) do(c *wholeClient, at *wholeOne, method, body string, header ...string) *wiretest.Reply {
	header = append(header, "Authorization", "Bearer "+wholeKeys[c.who])
	if c.id != "" {
		header = append(header, "Mcp-Session-Id", c.id, "Mcp-Protocol-Version", "2025-11-25")
	}
	return at.site.Do(method, "/files/mcp", body, header...)
}

// call begins a call.
func (w *wholePlay) call(c *wholeClient, at *wholeOne, tool, args string) *wholeCall {
	w.tags++
	c.next++
	k := &wholeCall{of: c, id: c.next, tag: fmt.Sprintf("mark%d.", w.tags), tool: tool, at: at, late: c.deleted}
	k.reply = w.do(c, at, http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"tag":%q%s}}}`, k.id, tool, k.tag, args))
	w.calls = append(w.calls, k)
	return k
}

func (w *wholePlay) step(what, x int) {
	world := w.w
	all := w.fronts()
	at := all[x%len(all)]
	other := all[(x/8+1)%len(all)]
	var c *wholeClient
	if len(w.clients) > 0 {
		c = w.clients[x/8%len(w.clients)]
	}
	open := func(is func(*wholeCall) bool) *wholeCall {
		for i := range w.calls {
			if k := w.calls[(i+x)%len(w.calls)]; !k.judged && is(k) {
				return k
			}
		}
		return nil
	}
	victims, least := w.role(), 2
	if w.workers > 0 && what >= 17 && x/8%2 == 1 {
		victims, least = cluster.RoleWorker, 1
		all = w.living(victims)
		at = all[x%len(all)]
	}
	switch what {
	case 0, 1, 2:
		if len(w.clients) < 6 {
			w.begin(x, at)
		}
	case 3, 4, 5, 6:
		if c != nil {
			w.call(c, at, "echo", "")
		}
	case 7, 8, 9:
		if c != nil {
			w.call(c, at, "late", fmt.Sprintf(`,"after":"%dms"`, x%20*500))
		}
	case 10, 11:
		if c != nil {
			w.call(c, at, "ask", "")
		}
	case 12, 13:
		if k := open(func(k *wholeCall) bool { e, ok := ownQuestion(k); return ok && !w.said[e.ID] }); k != nil {
			e, _ := ownQuestion(k)
			w.answer(k, e, "said "+k.tag, at)
		}
	case 14:
		if k := open(func(w *wholeCall) bool { return !w.reply.Over() && w.tool != "ask" }); k != nil {
			k.cancelled = true
			w.do(k.of, at, http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, k.id)).Wait()
		}
	case 15:
		if k := open(func(w *wholeCall) bool { return w.reply.Over() && w.again == nil }); k != nil {
			w.resume(k, at)
		}
	case 16:
		if c != nil && x%4 == 0 {
			w.end(c, at)
		}
	case 17, 18:
		if len(all) > least {
			w.kill(at)
		}
	case 19:
		if len(all) > least && world.calm() {
			world.mu.Lock()
			at.leaves = true
			world.mu.Unlock()
			w.loosen()
			at.stop()
		}
	case 20:
		// One that starts while others are cut off is not known to them: S-010 excepts it.
		if len(all) < 4 && world.calm() {
			w.start(victims)
		}
	case 21:
		w.cut(at, refuses)
	case 22:
		w.cut(at, silent)
	case 23:
		w.apart(at, other, refuses)
	case 24:
		w.apart(at, other, silent)
	case 25:
		w.wipe(x)
	case 26:
		world.mark()
		world.mu.Lock()
		at.slow = 200 * time.Millisecond
		world.mu.Unlock()
	case 27:
		world.mu.Lock()
		world.answered = 1 + x%3
		world.mu.Unlock()
	case 28:
		world.heal()
	case 29:
		w.settle()
	default:
		time.Sleep(time.Duration(x%80) * 100 * time.Millisecond)
	}
}

// begin begins a session.
func (w *wholePlay) begin(x int, at *wholeOne) {
	c := &wholeClient{n: len(w.clients), who: x / 4 % 2, firm: w.w.calm()}
	r := w.do(c, at, http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`).Wait()
	own, _ := answers(r, 0)
	switch {
	case r.Status() == http.StatusOK && len(own) == 1 && gjson.Get(own[0], "error.data.bridge").Str == "overloaded" && w.workers > 0: // no worker has taken it in time
	case r.Status() == http.StatusOK && r.Header("Mcp-Session-Id") != "":
		c.id = r.Header("Mcp-Session-Id")
		// An instance whose last beat has failed writes it later.
		c.firm = c.firm && w.w.calm() && w.w.store.Has(session.Key(c.id))
		c.loose = !c.firm && w.w.parted()
		w.clients = append(w.clients, c)
	case r.Status() != http.StatusServiceUnavailable:
		w.wrong("initialize: %d %s %v", r.Status(), r.Body(), r.Err())
	}
}

// questions returns the events with questions that came with the response to a call. A legacy server does not name the
// call that a question belongs to, so the question may come with the response to another call.
func questions(w *wholeCall) (all []wiretest.Event) {
	for _, e := range w.reply.Events() {
		if gjson.Get(e.Data, "method").Str == "sampling/createMessage" {
			all = append(all, e)
		}
	}
	return all
}

// ownQuestion returns the question of a call that asks, if it came with the response to it.
func ownQuestion(w *wholeCall) (e wiretest.Event, ok bool) {
	all := questions(w)
	if w.tool != "ask" || len(all) == 0 {
		return e, false
	}
	return all[0], true
}

// answer answers a question with a text.
func (w *wholePlay) answer(k *wholeCall, e wiretest.Event, text string, at *wholeOne) {
	r := w.do(k.of, at, http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"role":"assistant","content":{"type":"text","text":%q},"model":"m"}}`, gjson.Get(e.Data, "id").Raw, text)).Wait()
	w.status(k.of, at, r, "an answer")
	w.said[e.ID] = r.Status() == http.StatusAccepted // otherwise it may be told again
}

// resume comes back to the stream of a call that has broken off.
func (w *wholePlay) resume(k *wholeCall, at *wholeOne) {
	last := ""
	for _, e := range k.reply.Events() {
		if e.ID != "" {
			last = e.ID
		}
	}
	if k.reply.Err() == nil || last == "" {
		return
	}
	k.again = w.do(k.of, at, http.MethodGet, "", "Last-Event-Id", last)
}

func (w *wholePlay) end(c *wholeClient, at *wholeOne) {
	known := c.firm && w.w.calm() // otherwise the store may have it still, and be out of reach
	r := w.do(c, at, http.MethodDelete, "").Wait()
	w.status(c, at, r, "DELETE")
	c.deleted = c.deleted || known && r.Status() < 300 && r.Err() == nil
	c.gone, c.firm = true, false
}

// kill kills an instance. Sessions that the store may not have may be gone with it.
func (w *wholePlay) kill(o *wholeOne) {
	w.loosen()
	w.w.kill(o)
}

// loosen is for an instance that ends: with it may go what the store may not have.
func (w *wholePlay) loosen() {
	for _, c := range w.clients {
		c.gone = c.gone || !c.firm
	}
}

// cut has an instance lose the store. While most are cut off, the others reach each other
// (S-010 excepts the rest).
func (w *wholePlay) cut(o *wholeOne, f fault) {
	world := w.w
	world.mu.Lock()
	defer world.mu.Unlock()
	some := 0
	for _, other := range world.whole {
		if !other.dead && other.cut != fine {
			some++
		}
	}
	if some == 0 || len(world.apart) == 0 {
		o.cut = f
	}
}

// apart has two instances not reach each other.
func (w *wholePlay) apart(a, b *wholeOne, f fault) {
	if a != b && w.w.calm() && time.Now().After(w.unsure) {
		for _, c := range w.clients {
			c.loose = c.loose || !c.firm
		}
		w.w.part(a, b, f)
	}
}

// wipe has the store lose something.
func (w *wholePlay) wipe(x int) {
	world := w.w
	if world.parted() { // what lives is out of the taker's reach: S-010 excepts it
		return
	}
	if x%4 == 1 {
		world.mark()
		return
	}
	w.unsure = time.Now().Add(wholeLease)
	switch x % 4 {
	case 0:
		world.store.EndLeases()
		return
	case 2:
		world.wipe(nil)
	default:
		world.wipe(world.saved)
	}
	for _, c := range w.clients {
		held := false
		for _, w := range world.living() {
			held = held || w.s.instance.node.Holds(session.Key(c.id))
		}
		c.firm, c.gone = false, c.gone || !held // what nobody has, nobody puts again
		if x%4 == 3 && world.store.Has(session.Key(c.id)) {
			c.deleted = false // an old file has it, perhaps as that of an instance which has died since
			for _, k := range w.calls {
				k.late = k.late && k.of != c // it may have waited for the store
			}
		}
	}
}

// settle takes all faults away, and waits until all is as it should be.
func (w *wholePlay) settle() {
	w.w.heal()
	time.Sleep(3 * wholeLease)
	synctest.Wait()
	w.look()
	all := w.fronts()
	for _, c := range w.clients {
		if c.gone {
			continue
		}
		c.loose = false
		for _, at := range all {
			k := w.call(c, at, "echo", "")
			k.reply.Wait()
			synctest.Wait()
			if w.judge(k); w.fault == "" && !strings.Contains(k.reply.Body(), k.tag) {
				w.wrong("session %d of instance %s is not served at %d: %d %s %v", c.n, session.Tag(c.id), at.n, k.reply.Status(), k.reply.Body(), k.reply.Err())
			}
			// (S-026): nobody else has it.
			stranger := *c
			stranger.who = 1 - c.who
			if r := w.do(&stranger, at, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`).Wait(); r.Status() != http.StatusNotFound {
				w.wrong("the session of another caller: %d %s", r.Status(), r.Body())
			}
		}
		c.firm = true
	}
}

// look looks at what has come since.
func (w *wholePlay) look() {
	for _, s := range w.servers {
		for _, text := range s.Got() {
			if tag := gjson.Get(text, "params.arguments.tag").Str; tag != "" {
				if w.made[tag]++; w.made[tag] > 1 {
					w.wrong("%s was made %d times", tag, w.made[tag])
				}
			}
		}
	}
	for _, k := range w.calls {
		if k.reply.Over() {
			w.judge(k)
		}
	}
	if time.Now().Before(w.unsure) {
		return
	}
	for _, c := range w.clients {
		var who []string
		for _, o := range w.w.living() {
			key, n := session.Key(c.id), o.s.instance.node
			if n.Holds(key) && (n.Ready() || n.Await(w.w.t.Context(), key) == nil && n.Holds(key)) {
				who = append(who, fmt.Sprintf("%d (%s)", o.n, n.State()))
			}
		}
		if len(who) > 1 {
			w.wrong("session %d (%s) is served by %v at %s", c.n, session.Key(c.id)[:8], who, time.Now().Format("04:05.000"))
		}
	}
}

// status looks at the status of an answer.
func (w *wholePlay) status(c *wholeClient, at *wholeOne, r *wiretest.Reply, what string) {
	w.w.mu.Lock()
	away := at.dead || at.leaves
	w.w.mu.Unlock()
	switch s := r.Status(); {
	case r.Err() != nil && !away:
		w.wrong("%s of session %d at %d, which lives: %v after %d %s", what, c.n, at.n, r.Err(), s, r.Body())
	case s == http.StatusNotFound && !c.gone && !c.loose:
		w.wrong("%s of session %d at %d: 404 %s", what, c.n, at.n, r.Body())
	case s == http.StatusServiceUnavailable && r.Header("Retry-After") == "" && !away:
		w.wrong("%s of session %d at %d: 503 without Retry-After: %s", what, c.n, at.n, r.Body())
	case s == http.StatusUnauthorized || s == http.StatusForbidden || s == http.StatusInternalServerError:
		w.wrong("%s of session %d at %d: %d %s", what, c.n, at.n, s, r.Body())
	}
}

// answers returns the answers in a response to a request with an id.
func answers(r *wiretest.Reply, id int) (own []string, others int) {
	texts := []string{r.Body()}
	if strings.HasPrefix(r.Header("Content-Type"), "text/event-stream") {
		texts = nil
		for _, e := range r.Events() {
			texts = append(texts, e.Data)
		}
	}
	for _, text := range texts {
		switch m := gjson.Parse(text); {
		case text == "" || m.Get("method").Exists():
		case m.Get("id").Raw == fmt.Sprint(id):
			own = append(own, text)
		default:
			others++
		}
	}
	return own, others
}

// judge looks at the response to a call, which is over.
func (w *wholePlay) judge(k *wholeCall) {
	if k.again != nil && k.again.Over() {
		a, _ := answers(k.reply, k.id)
		b, _ := answers(k.again, k.id)
		if len(a)+len(b) > 1 {
			w.wrong("%s has %d answers, over a stream that was resumed: %v %v", k.tag, len(a)+len(b), a, b)
		}
	}
	if k.judged {
		return
	}
	k.judged = true
	r := k.reply
	w.status(k.of, k.at, r, "a call")
	own, others := answers(r, k.id)
	switch {
	case k.late && w.made[k.tag] > 0:
		w.wrong("%s of session %d was made, which was ended: %s", k.tag, k.of.n, r.Body())
	case len(own) > 1 || r.Status() == http.StatusOK && others > 0:
		w.wrong("%s (id %d) has other answers: %s", k.tag, k.id, r.Body())
	case r.Status() == http.StatusOK && r.Err() == nil && len(own) == 0 && !k.cancelled:
		w.wrong("%s of session %d at %d has no answer: %s", k.tag, k.of.n, k.at.n, r.Body())
	case len(own) == 1 && strings.Contains(strings.ReplaceAll(own[0], k.tag, ""), "mark") || k.tool == "echo" && len(own) == 1 && gjson.Get(own[0], "result").Exists() && !strings.Contains(own[0], k.tag):
		w.wrong("%s has the answer of another: %s", k.tag, own[0])
	case r.Status() != http.StatusOK && r.Err() == nil && !(k.cancelled && r.Status() == http.StatusAccepted) && w.made[k.tag] > 0 && r.Status() != http.StatusBadGateway:
		w.wrong("%s was made, and its client is told %d %s", k.tag, r.Status(), r.Body())
	}
}

// finish ends what is under way, and all sessions.
func (w *wholePlay) finish() {
	at := w.fronts()[0]
	for _, k := range w.calls {
		for _, e := range questions(k) {
			if !w.said[e.ID] {
				w.answer(k, e, "said at the end", at)
			}
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	for _, k := range w.calls {
		if !k.reply.Over() {
			w.wrong("%s (%s) of session %d at %d has no answer: %d %s", k.tag, k.tool, k.of.n, k.at.n, k.reply.Status(), k.reply.Body())
			k.reply.Leave()
		}
		if k.again == nil {
			w.resume(k, at)
		}
	}
	time.Sleep(10 * time.Second)
	synctest.Wait()
	w.look()
	for _, c := range w.clients {
		w.end(c, at)
	}
	for _, k := range w.calls {
		if k.again == nil {
			continue
		}
		k.again.Leave()
		w.judge(k)
	}
	time.Sleep(3 * wholeLease)
}

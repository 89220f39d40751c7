package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// changeEvery is how often a client is told of the same change.
const changeEvery = 100 * time.Millisecond

// Of a storm of changes each client hears the first at once, then one in 100 ms, and
// the last.
func TestChangesStorm(t *testing.T) {
	f := &fake{}
	run(t, ServerOptions{Adapter: f, Share: ShareAll}, func(t *testing.T, b *Gateway) {
		var streams []*stream
		for range 5 {
			s, st := begin(t, b, "p")
			streams = append(streams, st)
			<-start(t, s, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:"}}`).done
		}
		const storm, every = 2000, time.Millisecond
		say := func(i int) {
			f.wire(1).say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"n":%d}}}`, i))
			f.wire(1).say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:","n":%d}}`, i))
		}
		say(0)
		synctest.Wait()
		for i, st := range streams {
			if got := st.take(); len(got) != 2 {
				t.Errorf("client %d: at once %q, want one of each", i, got)
			}
		}
		for i := range storm {
			say(i + 1)
			time.Sleep(every)
		}
		time.Sleep(changeEvery)
		for i, st := range streams {
			got := st.take()
			most := 2 * int(storm*every/changeEvery+1)
			if n := len(got); n > most || n < most-4 {
				t.Errorf("client %d heard %d times within %v, want %d", i, n, storm*every, most)
			}
			last := strings.Join(got[len(got)-2:], "\n")
			if !strings.Contains(last, fmt.Sprintf(`{"uri":"a:","n":%d}`, storm)) || !strings.Contains(last, fmt.Sprintf(`{"_meta":{"n":%d}}`, storm)) {
				t.Errorf("client %d heard last %s", i, last)
			}
		}
		time.Sleep(changeEvery) // silence is forgotten
		say(-1)
		synctest.Wait()
		if got := streams[0].take(); len(got) != 2 {
			t.Errorf("after silence: at once %q", got)
		}
	})
}

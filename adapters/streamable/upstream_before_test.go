package streamable

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/bridge/conn"
	"github.com/mcp-bridge/bridge/bridge/gateway"
)

// What a legacy server says on the stream of a call reaches the client on the
// stream of its own call, before the answer and nowhere else. That something has
// changed is for all of the session: the standalone stream has it.
func TestUpstreamBeforeAnswer(t *testing.T) {
	const (
		vendor   = `{"jsonrpc":"2.0","method":"notifications/vendor/x","params":{"n":1.0}}`
		complete = `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}`
		task     = `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"working"}}`
		changed  = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		updated  = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:"}}`
	)
	s := newScript(t, &script{session: "s"})
	s.post = func(w http.ResponseWriter, r *http.Request, id string) {
		events(w)
		for _, line := range []string{changed, vendor, complete, task, updated} {
			fmt.Fprintf(w, "data: %s\n\n", line)
		}
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", id)
	}
	r := publish(t, adapter(t, s.URL, nil, conn.Options{}), gateway.Options{}, Options{})
	c := r.begin("2025-06-18")

	conn := r.Dial()
	defer conn.Close()
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:8808\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n", c.id)
	standalone, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || standalone.StatusCode != http.StatusOK {
		t.Fatalf("GET = %v, %v", standalone, err)
	}

	a := c.call("7", "x", "{}").Wait()
	var got []string
	for _, e := range a.Events() {
		got = append(got, e.Data)
	}
	want := []string{vendor, complete, task, `{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the POST was answered with\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// The last that the server said for the standalone stream came behind all else.
	got = nil
	for lines := bufio.NewScanner(standalone.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "" {
			if got = append(got, data); data == updated {
				break
			}
		}
	}
	if want := []string{changed, updated}; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the GET has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

package cli

import (
	"context"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/cmd/internal/flags"
)

// check warns of a size that does not fit the memory of the process; serve bounds one that is not set,
// and says so.
func TestFitsMemory(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "256MiB") // the runtime has read it already
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(256 << 20))
	const server = "listen: 127.0.0.1:0\nservers: { a: { http: https://example.com/mcp } }\n"
	large := file(t, "large.yaml", "max_bytes_in_flight: 512MiB\n"+server)
	says(t, 0, "warning: "+large+":1: max_bytes_in_flight is 512MiB", "*", "check", large)
	for path, want := range map[string]string{
		large:                        "set at most 64MiB",
		file(t, "open.yaml", server): `msg="max_bytes_in_flight is a quarter of the memory that the process may use" bytes=67108864`,
		file(t, "message.yaml", "max_message: 80MiB\n"+server): `it is max_message, the least that it can be" bytes=83886080`,
	} {
		c, err := flags.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		s, stop, err := begin(t.Context(), c, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		s.Close(t.Context())
		stop()
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s: the log lacks %q:\n%s", path, want, &log)
		}
	}
	for _, args := range [][]string{{"run", "--listen", "127.0.0.1:0"}, {"connect"}} { // without a file
		ctx, stop := context.WithCancel(t.Context())
		log := &trigger{text: "max_bytes_in_flight is", f: stop}
		run(ctx, append(args, "http://127.0.0.1:1/mcp"), io.Discard, log)
		stop()
		if !strings.Contains(log.all.String(), "67108864") {
			t.Errorf("%s: the log lacks the size:\n%s", args[0], &log.all)
		}
	}
}

// Behind runs a conformance client behind the bridge. The referee of the conformance package starts this program, and
// is the bridge's upstream.
//
//	behind BRIDGE CLIENT URL
//
// In authorization scenarios, the bridge signs in at the referee, with this program as the browser. The bridge runs
// with a client that connects to it, or as a stdio server.
//
//	behind run BRIDGE CLIENT URL
//	behind connect BRIDGE CLIENT URL
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"syscall"
)

func main() {
	var err error
	switch a := os.Args[1:]; {
	case len(a) == 2 && a[0] == "browse":
		err = browse(a[1])
	case len(a) == 3:
		err = run(a[0], a[1], "run", "--listen", "127.0.0.1:0", a[2])
	case len(a) == 4 && (a[0] == "run" || a[0] == "connect"):
		err = authorized(a[0], a[1], a[2], a[3])
	default:
		fmt.Fprintln(os.Stderr, "usage: behind [run|connect] BRIDGE CLIENT URL")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "behind:", err)
		os.Exit(1)
	}
}

// authorized runs a scenario in which the bridge must sign in at url.
func authorized(command, bridge, client, url string) error {
	dir, err := os.MkdirTemp("", "behind")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for name, value := range map[string]string{"BROWSER": self + " browse", "MCP_BRIDGE_STATE_DIR": dir} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	args, err := signIn(dir, command, url)
	if err != nil {
		return err
	}
	if command == "connect" {
		return stdio(bridge, args)
	}
	// The client does the same in all scenarios, and does not support scenarios of extensions.
	if err := os.Setenv("MCP_CONFORMANCE_SCENARIO", "auth/metadata-default"); err != nil {
		return err
	}
	return run(bridge, client, args...)
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+(/referee)?/mcp`)

// run starts the bridge with args, and the client in front of it.
func run(bridge, client string, args ...string) error {
	b := exec.Command(bridge, args...)
	b.Stderr = os.Stderr
	out, err := b.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	at := ""
	for at == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the bridge did not say where it listens: %w", err)
		}
		at = address.FindString(line)
	}
	go io.Copy(io.Discard, lines) // ends with the bridge, like this process
	c := exec.Command(client, at)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	failed := c.Run()
	if err := b.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := b.Wait(); err != nil {
		return fmt.Errorf("the bridge: %w", err)
	}
	return failed
}

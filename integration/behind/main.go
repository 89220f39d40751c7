// Behind runs a conformance client behind the bridge: the referee of the
// conformance package, which starts it, is the bridge's upstream.
//
//	behind BRIDGE CLIENT URL
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
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: behind BRIDGE CLIENT URL")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "behind:", err)
		os.Exit(1)
	}
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+/mcp`)

// run starts the bridge in front of url, and the client in front of the bridge.
func run(bridge, client, url string) error {
	b := exec.Command(bridge, "run", "--listen", "127.0.0.1:0", url)
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
	go io.Copy(io.Discard, lines) // ends with the bridge, and so does this process
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

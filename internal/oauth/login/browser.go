package login

import (
	"errors"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Browser returns the command that opens addresses: $BROWSER or the system's command, or nil if there is none.
func Browser() []string {
	if b := strings.Fields(os.Getenv("BROWSER")); len(b) > 0 {
		return b
	}
	switch runtime.GOOS {
	case "darwin":
		return []string{"open"}
	case "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return nil
	}
	if _, err := exec.LookPath("xdg-open"); err != nil {
		return nil
	}
	return []string{"xdg-open"}
}

// Show opens an address in the browser and does not wait. No shell reads the address. The address must be http or
// https, and is formatted anew, so that no command mistakes it for a flag (I-215).
func Show(browser []string, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("the address must be an http or https URL")
	}
	if len(browser) == 0 {
		return errors.New("there is no browser here: set BROWSER")
	}
	cmd := exec.Command(browser[0], append(browser[1:len(browser):len(browser)], u.String())...) // without stdout, which may carry MCP messages
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // the browser may run for as long as the person likes
	return nil
}

// Package systemd tests the unit for systemd.
package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mcp-bridge/bridge/internal/programtest"
)

const unit = "mcp-bridge.service"

func text(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// faults returns systemd's remarks about a unit. systemd exits with 0 also for unknown keys, so every remark is a
// fault.
func faults(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mcp-bridge"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "/usr/local/bin/mcp-bridge", filepath.Join(dir, "mcp-bridge")) // the file must exist
	path := filepath.Join(dir, unit)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}

// systemd knows every line of the unit (O-070).
func TestVerify(t *testing.T) {
	programtest.Need(t, "systemd-analyze")
	whole := text(t)
	if got := faults(t, whole); got != "" {
		t.Errorf("systemd-analyze verify says:\n%s", got)
	}
	for _, broken := range []struct{ line, instead string }{
		{"NoNewPrivileges=yes", "NoNewPriviledges=yes"},
		{"ProtectSystem=strict", "ProtectSystem=strictly"},
		{"KillMode=mixed", "KillMode=some"},
		{"ExecStart=/usr", "ExecStart=/nowhere/usr"},
		{"Type=notify", "Type=notifies"},
		{"ExecReload=/bin/kill", "ExecReload=kill-it"},
	} {
		if !strings.Contains(whole, broken.line) {
			t.Errorf("the unit has no line %s", broken.line)
		}
		if faults(t, strings.Replace(whole, broken.line, broken.instead, 1)) == "" {
			t.Errorf("%s is not seen", broken.instead)
		}
	}
}

// exposure is the exposure of a unit by systemd's own measure.
var exposure = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

// The service can do little besides its purpose.
func TestSecurity(t *testing.T) {
	programtest.Need(t, "systemd-analyze")
	check := func(text string) (level string, ok bool) {
		path := filepath.Join(t.TempDir(), unit)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=20", path).CombinedOutput()
		m := exposure.FindSubmatch(out)
		if m == nil {
			t.Fatalf("systemd-analyze security: %v\n%s", err, out)
		}
		return string(m[1]), err == nil
	}
	whole := text(t)
	if level, ok := check(whole); !ok {
		t.Errorf("the exposure of the unit is %s, more than 2.0", level)
	}
	for _, line := range []string{"ProtectSystem=strict\n", "SystemCallFilter=@system-service\n", "NoNewPrivileges=yes\n"} {
		if !strings.Contains(whole, line) {
			t.Errorf("the unit has no line %s", line)
		}
	}
	if level, ok := check(regexp.MustCompile(`(?m)^(Protect|Private|Restrict|SystemCall|Capability).*\n`).ReplaceAllString(whole, "")); ok {
		t.Errorf("a unit without protection has the exposure %s, and is not refused", level)
	}
}

// The unit gives the bridge more time to stop than it needs.
func TestStop(t *testing.T) {
	m := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(text(t))
	if m == nil || len(m[1]) < 2 || m[1] < "20" { // drain takes 10s, and servers get 5s to end
		t.Errorf("TimeoutStopSec is %v, want 20 or more", m)
	}
}

package orphans

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// asInit has the test binary be process 1: with "reap" or "leave".
const asInit = "ORPHANS_TEST_INIT"

// TestOrphans puts processes into a namespace in which we are process 1, as in a
// container: a grandchild in a session of its own ends after its parent. It stays a
// zombie unless it is reaped. A child of our own is still ours to wait for (O-061).
func TestOrphans(t *testing.T) {
	switch os.Getenv(asInit) {
	case "reap":
		defer Reap(time.Second)()
		orphan(t)
		return
	case "leave":
		orphan(t)
		return
	}
	for _, mode := range []string{"reap", "leave"} {
		c := exec.Command("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", os.Args[0], "-test.run=^TestOrphans$", "-test.v")
		c.Env = append(os.Environ(), asInit+"="+mode)
		out, err := c.CombinedOutput()
		if bytes.Contains(out, []byte("unshare: ")) {
			t.Skipf("this machine allows no namespaces: %s", out)
		}
		if want := map[string]string{"reap": "the orphan was reaped", "leave": "the orphan stays a zombie"}[mode]; err != nil || !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s: %v, want %q in\n%s", mode, err, want, out)
		}
	}
}

// orphan makes one, and says what becomes of it.
func orphan(t *testing.T) {
	if os.Getpid() != 1 {
		t.Fatalf("this is process %d", os.Getpid())
	}
	// The shell ends at once. The sleep, which it leaves, is in a session of its own.
	out, err := exec.Command("sh", "-c", "setsid sleep 0.2 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	stat := "/proc/" + strings.TrimSpace(string(out)) + "/stat"
	own := exec.Command("sleep", "0.3")
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- own.Wait() }()
	state := func() string {
		text, err := os.ReadFile(stat)
		if err != nil {
			return "gone"
		}
		return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[0]
	}
	wait := func(want string) {
		for state() != want {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if os.Getenv(asInit) == "leave" {
		wait("Z")
	} else {
		wait("gone")
	}
	if err := <-waited; err != nil {
		t.Errorf("our own child: %v", err)
	}
	if os.Getenv(asInit) == "leave" {
		if got := state(); got != "Z" {
			t.Errorf("the orphan is %s, want a zombie", got)
		}
		fmt.Println("the orphan stays a zombie")
		return
	}
	fmt.Println("the orphan was reaped")
}

//go:build linux || darwin

package child

import (
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/bridge/internal/script"
)

// reserve is the memory of the process beside that of the script, in bytes.
const reserve = 100 << 20

// limit bounds the process. From now on, the process opens no file and no connection, and starts no program, since it
// gets no further file descriptor.
func limit() error {
	debug.SetMaxStack(reserve / 2)
	time.Sleep(time.Millisecond) // Go opens its own descriptors with the first timer, and would fail later
	seconds := uint64(script.MaxProcessor.Seconds())
	for which, most := range map[int]uint64{
		unix.RLIMIT_DATA:   script.MaxMemory + reserve, // the engine bounds the memory of the script
		unix.RLIMIT_CPU:    seconds,
		unix.RLIMIT_NOFILE: 3, // stdin, stdout and stderr
		unix.RLIMIT_FSIZE:  0,
		unix.RLIMIT_CORE:   0,
	} {
		if err := unix.Setrlimit(which, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	return nil
}

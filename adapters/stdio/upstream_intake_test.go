package stdio

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/mcp-bridge/bridge/adapters/adaptertest"
	"github.com/mcp-bridge/bridge/bridge/conn"
)

func init() { children["halves"] = halves }

// halves is the server of adaptertest.Intake.
func halves() {
	rest := ""
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		_ = json.Unmarshal(line, &m)
		first, second := adaptertest.Halves(string(m.ID))
		switch {
		case m.Method == "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`+"\n", m.ID)
		case m.Method == adaptertest.Rest:
			fmt.Println(rest)
		case bytes.Contains(line, []byte("halves")):
			fmt.Print(first)
			rest = second
		case m.Method == "tools/call":
			fmt.Println(first + second)
		}
	}
}

func TestLinesUnderWay(t *testing.T) {
	quiet(t)
	adaptertest.Intake(t, adapter(t, "halves", conn.Options{Era: "legacy"}))
}

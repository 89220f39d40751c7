package flags

import (
	"net"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/bridge/cmd/internal/exit"
	"github.com/mcp-bridge/bridge/config"
)

// Listen holds the flags for the address on which the bridge listens.
type Listen struct {
	Address, Host, Port string
}

// Add adds the flags. byDefault names the address that is used without the flags.
func (l *Listen) Add(f *pflag.FlagSet, byDefault string) {
	f.StringVarP(&l.Address, "listen", "l", "", "address to listen on: PORT, HOST:PORT, or :PORT for all networks ("+byDefault+")")
	f.StringVar(&l.Host, "host", "", "host to listen on; 0.0.0.0 for all networks")
	f.StringVar(&l.Port, "port", "", "port to listen on; 0 picks a free one")
}

// Given returns the names of the flags that are set, as text.
func (l *Listen) Given() string {
	var all []string
	for _, f := range [][2]string{{l.Address, "--listen"}, {l.Host, "--host"}, {l.Port, "--port"}} {
		if f[0] != "" {
			all = append(all, f[1])
		}
	}
	return strings.Join(all, " ")
}

// Over returns the address on which to listen: the address in the flags, or without flags the given address. The form
// is that of the file: see config.Address.
func (l *Listen) Over(address string) (string, error) {
	if l.Address != "" && l.Host+l.Port != "" {
		return "", exit.Usagef("give --listen, or --host and --port, not both")
	}
	if l.Address != "" {
		return config.Address(l.Address), nil // Validate refuses a malformed address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address, nil
	}
	if l.Host != "" {
		host = strings.Trim(l.Host, "[]")
	}
	if l.Port != "" {
		port = l.Port
	}
	return net.JoinHostPort(host, port), nil
}

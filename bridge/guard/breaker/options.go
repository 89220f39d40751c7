package breaker

import (
	"time"

	"github.com/mcp-bridge/bridge/internal/setting"
)

// Options say when the circuit opens, and for how long.
type Options struct {
	Off bool `yaml:"-"` // there is no circuit breaker; a file says "off"
	// Failures is how many failures in a row open the circuit. 0 means 5.
	Failures int `yaml:"failures" default:"5"`
	// Percent is the percentage of failures among the calls within Window that opens the circuit. 0 means 60.
	Percent int `yaml:"percent" default:"60" max:"100"`
	// Calls is the least number of calls within Window at which Percent applies. 0 means 20.
	Calls int `yaml:"calls" default:"20"`
	// Window is the time over which Percent and Calls count. 0 means 30 s.
	Window time.Duration `yaml:"window" default:"30s"`
	// Pause is how long the circuit stays open at first. Each failed probe doubles the pause, up to 2 min. 0 means 5 s.
	Pause time.Duration `yaml:"pause" default:"5s"`
	// Slow is how long a call may take before its answer counts as a failure. 0 means no limit.
	Slow time.Duration `yaml:"slow"`
}

// complete returns the options with defaults in place of zero values. Slow 0 stays.
func (o Options) complete() Options {
	setting.Fill(&o)
	return o
}

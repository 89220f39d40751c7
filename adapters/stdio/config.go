package stdio

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Config says how to run one stdio server.
type Config struct {
	// Command is the program to run, by path or by its name in the PATH of the
	// child's environment. No shell is involved.
	Command string `yaml:"command"`
	// Args are the program's arguments, passed as they are.
	Args []string `yaml:"args"`
	// Env is added to the child's environment. Otherwise that has only PATH, HOME and the like,
	// proxies and CA files, and nothing else of the bridge's own environment.
	Env map[string]string `yaml:"env"`
	// EnvPass are the names of variables of the bridge's own environment that the
	// child gets too, or patterns of names, such as AWS_*. Env and EnvFile win.
	EnvPass []string `yaml:"env_pass"`
	// EnvFile names a file of KEY=VALUE lines that are added too; Env wins.
	EnvFile string `yaml:"env_file"`
	// Cwd is the child's working directory; empty means the bridge's own.
	Cwd string `yaml:"cwd"`
	// StopStdin is how long a child may take to end after its stdin was
	// closed, before SIGTERM; 0 means 2 s.
	StopStdin time.Duration `yaml:"stop_stdin" effect:"next"`
	// StopTerm is how long it may take after SIGTERM, before SIGKILL; 0 means 3 s.
	StopTerm time.Duration `yaml:"stop_term" effect:"next"`
}

// Validate reports faults of the settings. It reads no file and starts nothing.
func (c *Config) Validate() error {
	var errs []error
	if c.Command == "" {
		errs = append(errs, errors.New("command is empty: name the program to run, such as npx"))
	}
	for i, pattern := range c.EnvPass {
		if pattern == "" || strings.ContainsAny(pattern, "=\x00") {
			errs = append(errs, fmt.Errorf("env_pass: item %d must be the name of a variable or a pattern such as AWS_*; to set a value, use env", i+1))
		}
	}
	if c.StopStdin < 0 {
		errs = append(errs, fmt.Errorf("stop_stdin is %v: must not be negative", c.StopStdin))
	}
	if c.StopTerm < 0 {
		errs = append(errs, fmt.Errorf("stop_term is %v: must not be negative", c.StopTerm))
	}
	return errors.Join(errs...)
}

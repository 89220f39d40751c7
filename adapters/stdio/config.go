package stdio

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Config says how to run one stdio server.
type Config struct {
	// Command is the program to run: its path, or its name in the PATH of the child's environment. No
	// shell is involved.
	Command string `yaml:"command"`
	// Args are the program's arguments, passed as they are.
	Args []string `yaml:"args"`
	// Env is added to the child's environment. From the bridge's own environment, the child gets
	// only variables such as PATH and HOME, and those that name proxies and CA files.
	Env map[string]string `yaml:"env" names:"variable"`
	// EnvPass are names of further variables of the bridge's own environment that the child gets, or
	// patterns of names, such as AWS_*. Env and EnvFile win over EnvPass.
	EnvPass []string `yaml:"env_pass"`
	// EnvFile names a file of KEY=VALUE lines for the child's environment. Env wins over EnvFile.
	EnvFile string `yaml:"env_file"`
	// Cwd is the child's working directory. Empty means the bridge's own.
	Cwd string `yaml:"cwd"`
	// StopStdin is how long a child may take to end after its stdin is closed, before SIGTERM; 2 s if
	// 0.
	StopStdin time.Duration `yaml:"stop_stdin" effect:"next" default:"2s"`
	// StopTerm is how long a child may take to end after SIGTERM, before SIGKILL; 3 s if 0.
	StopTerm time.Duration `yaml:"stop_term" effect:"next" default:"3s"`
}

// Validate returns the faults of the settings, apart from those by the bounds in their tags, which package config
// checks. It reads no file and starts no program.
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
	return errors.Join(errs...)
}

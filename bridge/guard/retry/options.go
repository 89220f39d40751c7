package retry

// Options say which calls the bridge retries although the server may have executed them. Zero values are the defaults.
type Options struct {
	Off bool `yaml:"-"` // no call is made again; a file says "off"
	// Attempts is how often a call is made at most, the first time included. 0 means 2.
	Attempts int `yaml:"attempts" default:"2" max:"5"`
	// Tools includes calls of tools that the server declares read-only or idempotent. Lists, reads and pings are
	// retried without it.
	Tools bool `yaml:"tools"`
}

// On reports whether the options allow retries.
func (o *Options) On() bool { return !o.Off && o.Attempts != 1 }

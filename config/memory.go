package config

import "fmt"

// messagesShare is the divisor for the part of the process's memory that messages may take. Between two garbage
// collections they take up to twice their size, and child processes need room, too.
const messagesShare = 4

// Fit adapts MaxMessage and MaxInFlight to the bytes of memory that the process may use; 0 means no limit. Fit lowers
// sizes that the file does not set. For a size that the file sets, it only adds a warning if the size is too large.
func (c *Config) Fit(memory int64) {
	if memory <= 0 {
		return
	}
	room := Size(max(memory/messagesShare>>20, 1) << 20)
	for _, one := range []struct {
		key  string
		size *Size
		fit  Size // what replaces the default
	}{
		{"max_message", &c.MaxMessage, room / 2}, // at half of room, one message leaves room for others
		{"max_bytes_in_flight", &c.MaxInFlight, room},
	} {
		switch at, set := c.Origin("", one.key); {
		case set && *one.size <= room:
		case set:
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s:%d: %s is %s, more than a quarter of the %s of memory that the process may use: it may be killed under load: set at most %s, or allow more memory",
				c.name, at.Line, one.key, *one.size, Size(memory), room))
		default:
			*one.size = min(*one.size, one.fit)
		}
	}
	c.MaxInFlight = max(c.MaxInFlight, c.MaxMessage)
}

// Fitted returns why Fit lowered the default of max_bytes_in_flight, or "".
func (c *Config) Fitted() string {
	_, set := c.Origin("", "max_bytes_in_flight")
	switch {
	case set || c.MaxInFlight >= Default().MaxInFlight:
		return ""
	case c.MaxInFlight == c.MaxMessage:
		return "max_bytes_in_flight is not set, and the memory that the process may use is small: it is max_message, the least that it can be"
	}
	return "max_bytes_in_flight is a quarter of the memory that the process may use"
}

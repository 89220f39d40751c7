package config

import "fmt"

// messagesShare is the part of the process's memory that messages may take, as its divisor: they take
// up to twice their size between two garbage collections, and child processes need room beside them.
const messagesShare = 4

// Fit adapts the sizes of messages to the memory in bytes that the process may use; 0 means
// no limit. Sizes that the file leaves open shrink. One that it sets stays; Warnings say when it
// is too large.
func (c *Config) Fit(memory int64) {
	if memory <= 0 {
		return
	}
	room := Size(max(memory/messagesShare>>20, 1) << 20)
	for _, one := range []struct {
		key  string
		size *Size
	}{{"max_message", &c.MaxMessage}, {"max_bytes_in_flight", &c.MaxInFlight}} {
		switch at, set := c.Origin("", one.key); {
		case *one.size <= room:
		case set:
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s:%d: %s is %s, more than a quarter of the %s of memory that the process may use: it may be killed under load: set at most %s, or allow more memory",
				c.name, at.Line, one.key, *one.size, Size(memory), room))
		default:
			*one.size = room
		}
	}
	c.MaxInFlight = max(c.MaxInFlight, c.MaxMessage)
}

// Fitted reports whether Fit has lowered the default of max_bytes_in_flight.
func (c *Config) Fitted() bool {
	_, set := c.Origin("", "max_bytes_in_flight")
	return !set && c.MaxInFlight < Default().MaxInFlight
}

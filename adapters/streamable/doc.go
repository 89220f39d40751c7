// Package streamable speaks the Streamable HTTP transport (2025-03-26 to
// 2025-11-25, basic/transports): one URL for POST, GET and DELETE.
//
// The downstream half serves clients. A POST that is answered quickly, and
// about which the server says nothing else, gets a JSON response; otherwise it
// becomes a stream of events. See stream.go for how streams outlive their
// connections.
package streamable

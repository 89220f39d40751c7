//go:build !unix

package server

// maxOpenFiles returns 0: this system does not limit open files.
func maxOpenFiles() int { return 0 }

//go:build !linux

package stdio

import "os"

// thePoller cannot wait for anything here: each file has its goroutine.
var thePoller poller

type poller struct{}

func (poller) park(*os.File, func()) bool { return false }
func (poller) unpark(*os.File) bool       { return false }
func (poller) settle()                    {}

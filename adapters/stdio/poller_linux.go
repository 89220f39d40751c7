package stdio

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// thePoller is a variable of the package because it serves all children: what
// it saves is a goroutine for each file that nothing happens on.
var thePoller poller

// poller waits for many files with one goroutine, which is there only while
// there is something to wait for. A goroutine that waits in Read costs 4 KiB
// of stack for each file of each child, and most children are idle: an idle
// session takes 36 KB of the bridge's memory with it, and 43 KB without.
type poller struct {
	mu     sync.Mutex
	epoll  *os.File         // nil while nothing waits
	parked map[int32]func() // what to call, by descriptor
	ended  chan struct{}    // closed when the goroutine has ended
}

// park has ready called once when f can be read, or has ended. ready must not
// block. Park reports false where it cannot be done. Before f is closed, it
// must be ready or taken back with unpark.
func (p *poller) park(f *os.File, ready func()) bool {
	ok := false
	p.mu.Lock()
	defer p.mu.Unlock()
	control(f, func(fd int) {
		if p.epoll == nil && !p.open() {
			return
		}
		e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
		if p.control(unix.EPOLL_CTL_ADD, fd, &e) {
			p.parked[int32(fd)], ok = ready, true
		}
	})
	if len(p.parked) == 0 {
		p.close()
	}
	return ok
}

// unpark takes park back. It reports false when ready was called, or is about
// to be.
func (p *poller) unpark(f *os.File) (ok bool) {
	p.mu.Lock()
	control(f, func(fd int) { _, ok = p.take(int32(fd)) })
	p.mu.Unlock()
	return ok
}

// settle returns when the goroutine has ended, if nothing waits any more.
func (p *poller) settle() {
	p.mu.Lock()
	ended := p.ended
	idle := len(p.parked) == 0
	p.mu.Unlock()
	if idle && ended != nil {
		<-ended
	}
}

// take removes what waits for a descriptor. The caller holds p.mu.
func (p *poller) take(fd int32) (ready func(), ok bool) {
	if ready, ok = p.parked[fd]; !ok {
		return nil, false
	}
	delete(p.parked, fd)
	p.control(unix.EPOLL_CTL_DEL, int(fd), nil)
	if len(p.parked) == 0 {
		p.close()
	}
	return ready, true
}

// open starts the goroutine. The caller holds p.mu.
func (p *poller) open() bool {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	p.epoll = pollable(fd) // waited for by the runtime's own poller: no thread is held
	if p.epoll == nil {
		return false
	}
	p.parked, p.ended = map[int32]func(){}, make(chan struct{})
	go p.run(p.epoll, p.ended)
	return true
}

// close ends the goroutine. The caller holds p.mu.
func (p *poller) close() {
	if p.epoll != nil {
		p.epoll.Close()
		p.epoll = nil
	}
}

// control calls epoll_ctl. The caller holds p.mu.
func (p *poller) control(op, fd int, e *unix.EpollEvent) (ok bool) {
	control(p.epoll, func(epoll int) { ok = unix.EpollCtl(epoll, op, fd, e) == nil })
	return ok
}

func (p *poller) run(epoll *os.File, ended chan struct{}) {
	defer close(ended)
	raw, err := epoll.SyscallConn()
	if err != nil {
		return // closed already
	}
	var events [64]unix.EpollEvent
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events[:], 0)
			return n > 0
		})
		if err != nil {
			return // closed: nothing waits any more
		}
		for _, e := range events[:n] {
			p.mu.Lock()
			var ready func()
			if p.epoll == epoll { // otherwise the event is of what was taken back
				ready, _ = p.take(e.Fd)
			}
			p.mu.Unlock()
			if ready != nil {
				ready()
			}
		}
	}
}

// control calls f with the descriptor of an open file.
func control(file *os.File, f func(fd int)) {
	if raw, err := file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) }) // closed: then f is not called
	}
}

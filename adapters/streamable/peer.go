package streamable

import (
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/bridge/bridge/gateway"
)

// peer is one session of this transport, with the streams that its client may resume.
type peer struct {
	gateway.Session
	d     *Downstream
	id    string
	whose string // the principal
	epoch int64  // of the takeover from another instance; 0 for a session that began here

	mu      sync.Mutex // guards the fields below
	streams []*stream  // the streams with a log, oldest first
	gets    []*stream  // the streams that a GET reads, oldest first
	over    bool       // no stream can be resumed any more
}

// These bound the streams that a session keeps for resumption.
const (
	keepFor       = 10 * time.Minute // after the end of a stream
	keepStreams   = 256
	keepPeerBytes = 16 << 20 // bytes of all streams together
)

// maxGets bounds the open GETs of one session. A further GET closes the oldest, whose client has
// probably left unnoticed.
const maxGets = 32

// open adds a stream to p.gets.
func (p *peer) open(s *stream) {
	p.mu.Lock()
	p.gets = append(slices.DeleteFunc(p.gets, func(o *stream) bool { return o == s }), s)
	var oldest *stream
	if len(p.gets) > maxGets {
		oldest = p.gets[0]
		p.gets = slices.Delete(p.gets, 0, 1)
	}
	p.mu.Unlock()
	if oldest != nil {
		oldest.dismiss()
	}
}

// shut removes a stream from p.gets, unless another GET reads the stream by now.
func (p *peer) shut(s *stream) {
	if s.isRead() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gets = slices.DeleteFunc(p.gets, func(o *stream) bool { return o == s })
}

// breakAfter is how long a GET may continue after the end of its session. The GET ends by itself,
// unless the client does not read.
const breakAfter = 2 * time.Second

// breakOff closes the connections of the GETs that still run after breakAfter.
func (p *peer) breakOff() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.gets {
		time.AfterFunc(breakAfter, s.breakOff)
	}
}

// enter adds a stream to the resumable streams, and drops old ones. The caller holds s.mu, and no
// other stream's lock.
func (p *peer) enter(s *stream) {
	p.mu.Lock()
	old := p.trim(time.Now())
	if p.over {
		s.dropped = true
	} else {
		p.streams = append(p.streams, s)
	}
	p.mu.Unlock()
	for _, s := range old {
		s.log.DropCopy() // so that the store keeps no more of a session than this instance does
		s.drop()
	}
}

// forget drops all streams: they cannot be resumed any more.
func (p *peer) forget() {
	p.mu.Lock()
	old := p.streams
	p.streams, p.over = nil, true
	p.mu.Unlock()
	for _, s := range old {
		s.drop()
	}
}

// trim removes streams from p.streams and returns them. It removes those that ended more than
// keepFor ago. If the rest exceeds the bounds, trim also removes other ended streams: first those
// that were read to their end, then the others, each time the oldest first. The caller holds p.mu.
func (p *peer) trim(now time.Time) (old []*stream) {
	type info struct {
		s          *stream
		bytes      int
		over, read bool
	}
	var all []info
	total := 0
	for _, s := range p.streams {
		if !s.mu.TryLock() {
			all = append(all, info{s: s}) // in use, so it stays
			continue
		}
		i := info{
			s:     s,
			bytes: s.log.Bytes(),
			over:  !s.ended.IsZero() && !s.used(),
			read:  s.read,
		}
		late := i.over && now.Sub(s.ended) > keepFor
		s.mu.Unlock()
		if late {
			old = append(old, s)
			continue
		}
		all = append(all, i)
		total += i.bytes
	}
	count := len(all)
	drop := map[*stream]bool{}
	for _, readOnly := range []bool{true, false} {
		for _, i := range all {
			if count < keepStreams && total <= keepPeerBytes {
				break
			}
			if i.over && !drop[i.s] && (i.read || !readOnly) {
				drop[i.s] = true
				total -= i.bytes
				count--
			}
		}
	}
	keep := make([]*stream, 0, len(all)+1)
	for _, i := range all {
		if drop[i.s] {
			old = append(old, i.s)
		} else {
			keep = append(keep, i.s)
		}
	}
	p.streams = keep
	return old
}

func (p *peer) stream(id string) *stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.streams {
		if s.id == id {
			return s
		}
	}
	return nil
}

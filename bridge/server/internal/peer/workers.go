package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/mcp-bridge/bridge/adapters/remote"
	"github.com/mcp-bridge/bridge/internal/auth"
	"github.com/mcp-bridge/bridge/internal/cluster"
	"github.com/mcp-bridge/bridge/internal/cluster/queue"
)

// Workers are the two sides of workers: what this instance has offered, and the
// connections that it has opened for others.
type Workers interface {
	// Hand gives an offer to a worker: see offers.Front.
	Hand(id string, t queue.Ticket) error
	// Claim has a front go on with what a ticket stands for. An epoch that is higher than
	// the one before takes it from the front that had it. The error is ErrElsewhere where
	// that cannot be.
	Claim(ticket, front string, epoch int64) error
	// Failed says why the connection that a ticket stands for could not be opened; nil if
	// nothing is known of that.
	Failed(ticket string) error
	// Leave ends what this instance uses of the processes that run at another one, and waits until nothing of
	// it is left.
	Leave(ctx context.Context, instance string) error
	// Lane serves an inner session: that of a front which has claimed a ticket.
	Lane(w http.ResponseWriter, r *http.Request, t Claimed)
}

// Claimed is what the requests of a lane to a worker say of it.
type Claimed struct {
	Ticket, Front string
	Epoch         int64
}

// Headers of what goes to a worker.
const (
	TicketHeader = "Bridge-Ticket"
	epochHeader  = "Bridge-Epoch"
)

const (
	workPath  = version + "work"
	offerPath = "offers/"
	claimPath = "claims/"
)

// told is what a worker says to the front of an offer.
type told struct {
	Ticket string `json:"ticket"`
}

// Tell gives a front a ticket for its offer. The error is offers.ErrOver when that is over,
// and offers.ErrUnreached when nothing of it came there, or the front does not reach this
// instance; any other one means that it is not known.
func (p *Peers) Tell(ctx context.Context, m cluster.Member, offer, ticket string) error {
	body, _ := json.Marshal(told{ticket}) // nothing in it can fail
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	status, _, err := p.ask(ctx, m, offerPath+offer, body)
	switch {
	case err != nil && !connected.Load():
		return fmt.Errorf("%w: %w", queue.ErrUnreached, err)
	case err != nil:
		return err
	case status == http.StatusNoContent:
		return nil
	case status == http.StatusGone:
		return queue.ErrOver
	case status == http.StatusMisdirectedRequest:
		return queue.ErrUnreached
	}
	return errors.New(http.StatusText(status))
}

// AskWorker claims a ticket at its worker: see Workers. The error is ErrElsewhere when it
// stands for nothing any more; any other one means that the worker was not reached.
func (p *Peers) AskWorker(ctx context.Context, m cluster.Member, ticket string, epoch int64) error {
	status, _, err := p.ask(ctx, m, claimPath+ticket, []byte(strconv.FormatInt(epoch, 10)))
	if err == nil && status != http.StatusNoContent {
		err = ErrElsewhere
	}
	return err
}

// WhyWorker returns why a worker could not open the connection of a ticket; nil if that is
// not known.
func (p *Peers) WhyWorker(ctx context.Context, m cluster.Member, server, ticket string) error {
	status, text, err := p.ask(ctx, m, claimPath+ticket+"/why", nil)
	if err != nil || status != http.StatusOK {
		return nil
	}
	return decodeError(server, text)
}

// ask sends a short request, and reads a short response.
func (p *Peers) ask(ctx context.Context, m cluster.Member, path string, body []byte) (status int, text []byte, err error) {
	res, err := p.post(ctx, m, path, nil, body)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err = io.ReadAll(io.LimitReader(res.Body, whole))
	return res.StatusCode, text, err
}

// WorkWay returns how the lanes to a worker reach it.
func (p *Peers) WorkWay(m cluster.Member) remote.Config {
	c := p.Way(m)
	c.URL = strings.TrimSuffix(c.URL, LanePath) + workPath
	return c
}

// WorkHeader returns what the requests of a lane to a worker say of it.
func WorkHeader(principal, ticket string, epoch int64) map[string]string {
	return map[string]string{principalHeader: Encode(principal), TicketHeader: ticket, epochHeader: strconv.FormatInt(epoch, 10)}
}

// handleWorkers serves what workers and their fronts ask of each other.
func (p *Peers) handleWorkers(mux *http.ServeMux) {
	mux.HandleFunc("POST "+version+offerPath+"{id}", func(w http.ResponseWriter, r *http.Request) {
		var t told
		if err := json.NewDecoder(io.LimitReader(r.Body, whole)).Decode(&t); err != nil {
			http.Error(w, "not a ticket", http.StatusBadRequest)
			return
		}
		switch err := p.o.Workers().Hand(r.PathValue("id"), queue.Ticket{Worker: idOf(r.TLS), Key: t.Ticket}); {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case errors.Is(err, queue.ErrUnreached):
			w.WriteHeader(http.StatusMisdirectedRequest)
		default:
			w.WriteHeader(http.StatusGone)
		}
	})
	mux.HandleFunc("POST "+version+claimPath+"{ticket}", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(io.LimitReader(r.Body, whole))
		epoch, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
		switch {
		case err != nil:
			http.Error(w, "not an epoch", http.StatusBadRequest)
		case p.o.Workers().Claim(r.PathValue("ticket"), idOf(r.TLS), epoch) == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusGone)
		}
	})
	mux.HandleFunc("POST "+version+claimPath+"{ticket}/why", func(w http.ResponseWriter, r *http.Request) {
		if err := p.o.Workers().Failed(r.PathValue("ticket")); err != nil {
			_, _ = w.Write(encodeError(err)) // who has asked may have gone
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc(workPath, func(w http.ResponseWriter, r *http.Request) {
		name, ok := Decode(r.Header.Get(principalHeader))
		epoch, err := strconv.ParseInt(r.Header.Get(epochHeader), 10, 64)
		if !ok || err != nil {
			http.Error(w, "not a request of a lane", http.StatusBadRequest)
			return
		}
		p.o.Workers().Lane(w, r.WithContext(auth.WithPrincipal(r.Context(), name)), Claimed{r.Header.Get(TicketHeader), idOf(r.TLS), epoch})
	})
}

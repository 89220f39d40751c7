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

// Workers takes what other instances send: grants for requests of this instance, and claims of its slots.
type Workers interface {
	// AcceptGrant takes the grant for a request of this instance: see queue.Front.
	AcceptGrant(id string, g queue.Grant) error
	// ClaimSlot lets a front use the slot of a grant. A higher epoch takes the slot from its former front. The error
	// is ErrElsewhere when the front may not use the slot.
	ClaimSlot(grant, front string, epoch int64) error
	// SlotFailure returns the reason that the connection of a grant was not opened, or nil.
	SlotFailure(grant string) error
	// Leave closes the tunnels of this instance to a worker that stops, and waits until this instance does not use
	// the worker any more.
	Leave(ctx context.Context, instance string) error
	// ServeTunnel serves a tunnel of a front that claimed a slot.
	ServeTunnel(w http.ResponseWriter, r *http.Request, s SlotClaim)
}

// SlotClaim names the slot and the front of a tunnel's request to a worker.
type SlotClaim struct {
	Grant, Front string
	Epoch        int64
}

// These are the headers of requests to a worker. Their names must not change: instances of different versions send
// them to each other.
const (
	GrantHeader = "Bridge-Ticket"
	epochHeader = "Bridge-Epoch"
)

const (
	workerTunnelPath = version + "work"
	offerPath        = "offers/"
	claimPath        = "claims/"
)

type grantBody struct {
	Grant string `json:"ticket"`
}

// Grant sends a front the grant for its request. The error is queue.ErrOver when the request is over, and
// queue.ErrUnreached when the front was not reached, or does not reach this instance. After any other error the
// outcome is unknown.
func (p *Peers) Grant(ctx context.Context, m cluster.Member, request, grant string) error {
	body, _ := json.Marshal(grantBody{grant}) // a string always has a JSON form
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	status, _, err := p.ask(ctx, m, offerPath+request, body)
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

// ClaimSlot claims the slot of a grant at its worker: see Workers. The error is ErrElsewhere when this instance may
// not use the slot; any other error means that the worker gave no answer.
func (p *Peers) ClaimSlot(ctx context.Context, m cluster.Member, grant string, epoch int64) error {
	status, _, err := p.ask(ctx, m, claimPath+grant, []byte(strconv.FormatInt(epoch, 10)))
	if err == nil && status != http.StatusNoContent {
		err = ErrElsewhere
	}
	return err
}

// SlotFailure returns the reason that a worker could not open the connection of a grant; nil if the worker knows none
// or gave no answer.
func (p *Peers) SlotFailure(ctx context.Context, m cluster.Member, server, grant string) error {
	status, text, err := p.ask(ctx, m, claimPath+grant+"/why", nil)
	if err != nil || status != http.StatusOK {
		return nil
	}
	return decodeError(server, text)
}

// ask sends a short request and reads a short response.
func (p *Peers) ask(ctx context.Context, m cluster.Member, path string, body []byte) (status int, text []byte, err error) {
	res, err := p.post(ctx, m, path, nil, body)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err = io.ReadAll(io.LimitReader(res.Body, maxBuffered))
	return res.StatusCode, text, err
}

// WorkerTunnel returns the client settings of tunnels to a worker.
func (p *Peers) WorkerTunnel(m cluster.Member) remote.Config {
	c := p.OwnerTunnel(m)
	c.URL = strings.TrimSuffix(c.URL, OwnerTunnelPath) + workerTunnelPath
	return c
}

// WorkerTunnelHeaders returns the headers of the requests of a tunnel to a worker.
func WorkerTunnelHeaders(principal, grant string, epoch int64) map[string]string {
	return map[string]string{principalHeader: Encode(principal), GrantHeader: grant, epochHeader: strconv.FormatInt(epoch, 10)}
}

// handleWorkers registers the handlers for workers and their fronts.
func (p *Peers) handleWorkers(mux *http.ServeMux) {
	mux.HandleFunc("POST "+version+offerPath+"{id}", func(w http.ResponseWriter, r *http.Request) {
		var g grantBody
		if err := json.NewDecoder(io.LimitReader(r.Body, maxBuffered)).Decode(&g); err != nil {
			http.Error(w, "not a grant", http.StatusBadRequest)
			return
		}
		switch err := p.parts.Workers.AcceptGrant(r.PathValue("id"), queue.Grant{Worker: idOf(r.TLS), Key: g.Grant}); {
		case err == nil:
			w.WriteHeader(http.StatusNoContent)
		case errors.Is(err, queue.ErrUnreached):
			w.WriteHeader(http.StatusMisdirectedRequest)
		default:
			w.WriteHeader(http.StatusGone)
		}
	})
	mux.HandleFunc("POST "+version+claimPath+"{grant}", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(io.LimitReader(r.Body, maxBuffered))
		epoch, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
		switch {
		case err != nil:
			http.Error(w, "not an epoch", http.StatusBadRequest)
		case p.parts.Workers.ClaimSlot(r.PathValue("grant"), idOf(r.TLS), epoch) == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusGone)
		}
	})
	mux.HandleFunc("POST "+version+claimPath+"{grant}/why", func(w http.ResponseWriter, r *http.Request) {
		if err := p.parts.Workers.SlotFailure(r.PathValue("grant")); err != nil {
			_, _ = w.Write(encodeError(err)) // the front may be gone
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc(workerTunnelPath, func(w http.ResponseWriter, r *http.Request) {
		name, ok := Decode(r.Header.Get(principalHeader))
		epoch, err := strconv.ParseInt(r.Header.Get(epochHeader), 10, 64)
		if !ok || err != nil {
			http.Error(w, "not a request of a tunnel", http.StatusBadRequest)
			return
		}
		p.parts.Workers.ServeTunnel(w, r.WithContext(auth.WithPrincipal(r.Context(), name)), SlotClaim{r.Header.Get(GrantHeader), idOf(r.TLS), epoch})
	})
}

package login

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/internal/backoff"
	"github.com/mcp-bridge/bridge/internal/oauth/discovery"
)

const (
	// deviceLimit bounds a sign-in on another device, even if the authorization server allows more time.
	deviceLimit = 30 * time.Minute
	// usualInterval is the polling interval if the authorization server does not name one, and the time that slow_down
	// adds to the interval (RFC 8628 §3.5). maxInterval bounds the interval.
	usualInterval = 5 * time.Second
	maxInterval   = time.Minute
	maxUserCode   = 100
)

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// byDevice makes the person sign in on any device, and returns the token (I-221; RFC 8628).
func (p *Person) byDevice(ctx context.Context, w *work, l, earlier *Login, scopes []string) (*discovery.Token, error) {
	client, err := p.deviceClient(ctx, l, earlier)
	if err != nil {
		return nil, err
	}
	l.Client = client
	form := url.Values{}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	if l.Resource != "" {
		form.Set("resource", l.Resource)
	}
	began := time.Now()
	data, err := p.ask.Send(ctx, &l.Issuer, l.Issuer.Device, l.Client.grant(p.o.Client), form)
	if discovery.Refused(err) == "invalid_client" && earlier != nil && l.Client == earlier.Client && l.Issuer.Registration != "" { // the authorization server has forgotten the bridge's registration
		if l.Client, err = p.register(ctx, &l.Issuer, ""); err == nil {
			data, err = p.ask.Send(ctx, &l.Issuer, l.Issuer.Device, l.Client.grant(p.o.Client), form)
		}
	}
	if err != nil {
		return nil, err
	}
	address, code, both := gjson.GetBytes(data, "verification_uri").String(), gjson.GetBytes(data, "user_code").String(), gjson.GetBytes(data, "verification_uri_complete").String()
	device := gjson.GetBytes(data, "device_code").String()
	if _, err := p.find.Address(address); err != nil || code == "" || len(code) > maxUserCode || device == "" {
		return nil, errors.New("the authorization server's answer must have verification_uri, user_code and device_code")
	}
	if _, err := p.find.Address(both); err != nil {
		both = ""
	}
	life := deviceLimit
	if n := gjson.GetBytes(data, "expires_in").Float(); n > 0 && n < life.Seconds() {
		life = time.Duration(n * float64(time.Second))
	}
	interval := usualInterval
	if n := gjson.GetBytes(data, "interval").Float(); n > 0 {
		interval = time.Duration(min(n, maxInterval.Seconds()) * float64(time.Second))
	}
	w.mu.Lock()
	if w.address = both; both == "" {
		w.address = address + " and enter the code " + code
	}
	w.mu.Unlock()
	p.o.Device(address, code, both)
	ctx, cancel := context.WithDeadline(ctx, began.Add(life))
	defer cancel()
	form = url.Values{"grant_type": {deviceGrant}, "device_code": {device}}
	if l.Resource != "" {
		form.Set("resource", l.Resource)
	}
	late := fmt.Errorf("nobody signed in within %v: begin again", life.Round(time.Second))
	for {
		if err := backoff.For(ctx, interval); errors.Is(err, context.DeadlineExceeded) {
			return nil, late
		} else if err != nil {
			return nil, err
		}
		t, err := p.token(ctx, l, form)
		if err == nil {
			return t, nil
		}
		e, answered := errors.AsType[*discovery.Error](err)
		switch {
		case !answered, e.Status >= 500, e.Status == http.StatusRequestTimeout, e.Status == http.StatusTooManyRequests && e.Code == "":
			interval = min(2*interval, maxInterval) // the server is unreachable or overloaded
		case e.Code == "authorization_pending":
		case e.Code == "slow_down":
			interval = min(interval+usualInterval, maxInterval)
		case e.Code == "access_denied":
			return nil, errors.New("the sign-in was refused on the other device")
		case e.Code == "expired_token":
			return nil, late
		default:
			return nil, err
		}
	}
}

// deviceClient returns the client of the settings, else the client of an earlier sign-in on a device, else a new
// client.
func (p *Person) deviceClient(ctx context.Context, l, earlier *Login) (Client, error) {
	at := &l.Issuer
	switch {
	case p.o.Client != nil:
		return Client{ID: p.o.Client.ID, Method: p.o.Client.Grant().Method}, nil
	case at.Documents && p.o.ClientMetadataURL != "":
		return Client{ID: p.o.ClientMetadataURL}, nil
	case earlier != nil && earlier.Client.Registered && earlier.Client.Redirect == "" && earlier.Client.ID != "" && (earlier.Client.Ends.IsZero() || time.Now().Before(earlier.Client.Ends)):
		return earlier.Client, nil
	case at.Registration == "":
		return Client{}, fmt.Errorf("the authorization server %s has no registration_endpoint: register a client there for the device flow, and name it with client: { id: … } or --client-id", at.Name)
	}
	return p.register(ctx, at, "")
}

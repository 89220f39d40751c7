package front

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// I-114: each made-up code costs a request to the provider in the bridge's name. One address may do so only now and
// then, and others are not affected.
func TestMadeUpCodes(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		from := netip.MustParseAddr("192.0.2.7")
		r.o.Bridge.(*testBridge).from = func(*http.Request) netip.Addr { return from }
		id, b := r.join(back), r.browser()
		comes := func() string {
			t.Helper()
			to := r.p.signIn(t, b.agree(ask(id)).Header().Get("Location"))
			q := to.Query()
			q.Set("code", "junk")
			to.RawQuery = q.Encode()
			return b.returns(to).Get("error")
		}
		got := map[string]int{}
		for range 110 {
			got[comes()]++
		}
		if n := len(r.p.forms); n != 100 || got["server_error"] != 100 || got["temporarily_unavailable"] != 10 {
			t.Errorf("of 110 codes that were made up, the provider was asked about %d: %v", n, got)
		}
		from = netip.MustParseAddr("192.0.2.8")
		if got := b.signIn(ask(id)); got.Get("code") == "" {
			t.Errorf("at another address: %v", got)
		}
		from = netip.MustParseAddr("192.0.2.7")
		<-time.After(time.Second)
		if one, two := comes(), comes(); one != "server_error" || two != "temporarily_unavailable" {
			t.Errorf("a second later: %s, %s", one, two)
		}
	})
}

// I-114: the number of codes in exchange is limited. Others wait, but not forever.
func TestCodesAtATime(t *testing.T) {
	fronted(t, nil, func(t *testing.T, r *rig) {
		hold := make(chan struct{})
		r.p.during = func() { <-hold }
		id := r.join(back)
		asked := func() int {
			synctest.Wait()
			r.p.mu.Lock()
			defer r.p.mu.Unlock()
			return len(r.p.forms)
		}
		var mu sync.Mutex // guards late
		var wg sync.WaitGroup
		late := 0
		come := func(n int) {
			for range n {
				b := r.browser()
				to := r.p.signIn(t, b.agree(ask(id)).Header().Get("Location"))
				wg.Go(func() {
					u, err := url.Parse(b.do("GET", to.RequestURI(), nil).Header().Get("Location"))
					mu.Lock()
					defer mu.Unlock()
					if err != nil || u.Query().Get("error_description") == errBusy.Error()+": try again later" {
						late++
					}
				})
			}
		}
		come(maxExchanges + 5)
		if n := asked(); n != maxExchanges {
			t.Errorf("the provider is asked about %d codes at a time, want %d", n, maxExchanges)
		}
		<-time.After(slotWait + time.Second)
		synctest.Wait()
		mu.Lock()
		if late != 5 {
			t.Errorf("%d do not wait any more, want 5", late)
		}
		mu.Unlock()
		come(3)
		synctest.Wait()
		close(hold)
		wg.Wait()
		if n := asked(); n != maxExchanges+3 || late != 5 {
			t.Errorf("the provider was asked about %d codes, want %d; %d were refused", n, maxExchanges+3, late)
		}
	})
}

// I-114: a user whom no rule admits cannot sign in more often than others.
func TestStrangerOften(t *testing.T) {
	looked := 0
	fronted(t, func(o *Options) {
		o.Bridge.(*testBridge).admits = func(context.Context, string, string) bool {
			looked++
			return false
		}
	}, func(t *testing.T, r *rig) {
		id, b := r.join(back), r.browser()
		got := map[string]int{}
		for range 35 {
			got[b.signIn(ask(id)).Get("error")]++
		}
		if looked != 30 || got["access_denied"] != 30 || got["temporarily_unavailable"] != 5 {
			t.Errorf("of 35 sign-ins, the rules were looked at for %d: %v", looked, got)
		}
	})
}

// I-114: rates count a subscriber's whole network, and slots a company's.
func TestNetworks(t *testing.T) {
	for address, want := range map[string][2]string{
		"192.0.2.7": {"192.0.2.7/32", "192.0.2.7/32"}, "::ffff:192.0.2.7": {"192.0.2.7/32", "192.0.2.7/32"},
		"2001:db8:1:2:3::4": {"2001:db8:1:2::/64", "2001:db8:1::/48"}, "fe80::1%eth0": {"fe80::/64", "fe80::/48"},
	} {
		if a := netip.MustParseAddr(address); network(a) != want[0] || site(a) != want[1] {
			t.Errorf("%s: %s and %s, want %s", address, network(a), site(a), want)
		}
	}
	if network(netip.Addr{}) != site(netip.Addr{}) {
		t.Error("an address that is not known is of two networks")
	}
}

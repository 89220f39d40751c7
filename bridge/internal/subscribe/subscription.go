// Package subscribe reads subscriptions to changes of lists and resources, stores their subscribers, and limits
// the rate of change notifications.
package subscribe

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/list"
	"github.com/mcp-bridge/bridge/internal/rawjson"
)

// Params returns the params of a request or a notification about a resource.
func Params(uri string) []byte { return []byte(`{"uri":` + rawjson.Quote(uri) + `}`) }

// Updated returns the notification that a resource has changed.
func Updated(uri string) *jsonrpc.Message {
	m := jsonrpc.NewNotification("notifications/resources/updated", Params(uri))
	return m.Clone() // Clone parses m, so that URI works
}

// MaxWanted bounds the resources, and the tasks, of one subscription (protocol.md F).
const MaxWanted = 256

// MaxSubscriptions bounds the subscribed resources of a session or a connection.
const MaxSubscriptions = 4096

// MaxEarly bounds the notifications that wait for the acknowledgement of a subscription.
const MaxEarly = MaxWanted + len(list.Announced)

// Wanted is the content of a subscription (2026-07-28, subscriptions).
type Wanted struct {
	Changes map[string]bool // notifications of changed lists, by method
	URIs    []string
	Tasks   []string // ids
}

// ReadWanted reads the content of a listen request or its acknowledgement. fault describes the first invalid
// list, which is then empty.
func ReadWanted(params []byte) (w Wanted, fault string) {
	all := gjson.GetBytes(params, "notifications")
	if !all.IsObject() {
		return w, "params.notifications must be an object"
	}
	w.Changes = map[string]bool{}
	for _, k := range list.Announced {
		if all.Get(k.Topic()).Bool() {
			w.Changes[k.Changed()] = true
		}
	}
	var other string
	w.URIs, fault = texts(all, "resourceSubscriptions")
	w.Tasks, other = texts(all, "taskIds")
	return w, cmp.Or(fault, other)
}

// ReadListen reads a client's listen request. ReadListen rejects a member whose name differs from a known name only
// in case: some servers would accept the name, which would bypass the bridge's checks.
func ReadListen(params []byte) (w Wanted, fault string) {
	whole := gjson.ParseBytes(params)
	fault = cmp.Or(lookalike(whole, "params", "notifications"), lookalike(whole.Get("notifications"), "params.notifications", "resourceSubscriptions", "taskIds"))
	if fault != "" {
		return w, fault
	}
	return ReadWanted(params)
}

// lookalike returns the fault of a member that differs from one of these names only in case, or "".
func lookalike(object gjson.Result, of string, names ...string) (fault string) {
	object.ForEach(func(name, _ gjson.Result) bool {
		for _, known := range names {
			if name.Str != known && strings.EqualFold(name.Str, known) {
				fault = of + " has a member that is " + known + " in other letters: write " + known
			}
		}
		return fault == ""
	})
	return fault
}

// texts reads a member that is a list of strings.
func texts(object gjson.Result, member string) (all []string, fault string) {
	list := object.Get(member)
	if list.Exists() && !list.IsArray() {
		return nil, "params.notifications." + member + " must be an array of strings"
	}
	seen := map[string]bool{}
	for _, item := range list.Array() {
		if item.Type != gjson.String {
			return nil, "params.notifications." + member + " must be an array of strings"
		}
		if !seen[item.Str] {
			seen[item.Str] = true
			all = append(all, item.Str)
		}
	}
	if len(all) > MaxWanted {
		return nil, bridge.OverLimit("params.notifications."+member+" is too long", MaxWanted)
	}
	return all, ""
}

// Raw returns the content as in a listen request and its acknowledgement.
func (w *Wanted) Raw() []byte {
	out := []byte{'{'}
	add := func(name string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), name...), `":`...), value...)
	}
	for _, k := range list.Announced {
		if w.Changes[k.Changed()] {
			add(k.Topic(), []byte("true"))
		}
	}
	if len(w.URIs) > 0 {
		add("resourceSubscriptions", quoted(w.URIs))
	}
	if len(w.Tasks) > 0 {
		add("taskIds", quoted(w.Tasks))
	}
	return append(out, '}')
}

// Missed calls notify with a notification for each wanted list and resource: any may have changed without a listener
//
func (w *Wanted) Missed(notify func(m *jsonrpc.Message)) {
	for _, k := range list.Announced {
		if w.Changes[k.Changed()] {
			notify(jsonrpc.NewNotification(k.Changed(), nil))
		}
	}
	for _, uri := range w.URIs {
		notify(Updated(uri))
	}
}

// Of returns the kinds whose changes are wanted.
func (w *Wanted) Of(kinds []list.Kind) []list.Kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k list.Kind) bool { return !w.Changes[k.Changed()] })
}

// NotifyChanged notifies a client that lists of those kinds have changed.
func NotifyChanged(c *Changes, kinds []list.Kind) {
	for _, k := range kinds {
		c.Notify(k.Changed(), jsonrpc.NewNotification(k.Changed(), nil))
	}
}

// Narrowed returns a listen request with these params, and items in place of that member.
func Narrowed(params []byte, member string, items []string) *jsonrpc.Message {
	what := rawjson.Set([]byte(gjson.GetBytes(params, "notifications").Raw), member, quoted(items))
	return jsonrpc.NewRequest(era.Listen, rawjson.Set(params, "notifications", what))
}

func quoted(items []string) []byte {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = rawjson.Quote(item)
	}
	return []byte("[" + strings.Join(all, ",") + "]")
}

// Listener is one client's subscription. Notifications wait until the client has the acknowledgement.
type Listener struct {
	Wants Wanted // may be changed until Acknowledge

	back  bridge.Client
	mu    sync.Mutex // guards the rest, and the order of notifications
	begun bool       // the client has the acknowledgement
	early []*jsonrpc.Message
}

// NewListener returns a subscription. Its notifications go to the client back.
func NewListener(back bridge.Client, wants Wanted) *Listener {
	return &Listener{back: back, Wants: wants}
}

// Notify passes on a notification, after the acknowledgement. Until then, at most MaxEarly notifications wait, and
// Notify drops further ones.
func (l *Listener) Notify(m *jsonrpc.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.begun:
		l.back.Notify(m)
	case len(l.early) < MaxEarly:
		l.early = append(l.early, m.Clone())
	}
}

// Acknowledged reports whether the client has the acknowledgement.
func (l *Listener) Acknowledged() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

// Acknowledge sends the acknowledgement, and then the notifications that have waited.
func (l *Listener) Acknowledge(what *Wanted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.back.Notify(jsonrpc.NewNotification(era.Acknowledged, []byte(`{"notifications":`+string(what.Raw())+`}`)))
	for _, m := range l.early {
		l.back.Notify(m)
	}
	l.begun, l.early = true, nil
}

// Within reports whether uri equals whole, or is a part of that resource.
func Within(uri, whole string) bool {
	rest, ok := strings.CutPrefix(uri, whole)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(whole, "/"))
}

// Tagged returns the notification with the id of its subscription.
func Tagged(m *jsonrpc.Message, subscription []byte) *jsonrpc.Message {
	params, meta := m.Params, []byte("{}")
	if params == nil {
		params = []byte("{}")
	}
	if had := gjson.GetBytes(params, "_meta"); had.IsObject() {
		meta = []byte(had.Raw)
	}
	params = rawjson.SetFirst(params, "_meta", rawjson.SetFirst(meta, era.KeySubscription, subscription))
	t := jsonrpc.NewNotification(m.Method, params)
	return t.Clone() // Clone parses t, so that its members are known
}

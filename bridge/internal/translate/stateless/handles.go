package stateless

import (
	"bytes"
	"encoding/json"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge"
	"github.com/mcp-bridge/bridge/bridge/era"
	"github.com/mcp-bridge/bridge/bridge/internal/subscribe"
	"github.com/mcp-bridge/bridge/bridge/internal/translate/lower"
	"github.com/mcp-bridge/bridge/bridge/jsonrpc"
	"github.com/mcp-bridge/bridge/internal/rawjson"
	"github.com/mcp-bridge/bridge/internal/seal"
)

// handles translates the handles that a modern server gives to one client: requestState and task ids. For the server,
// all clients are one client. So if there are principals, each handle is sealed for its principal (protocol.md D0,
//
type handles struct {
	p    *Pool
	from *bridge.Caller
	ids  map[string]string // the client's task ids, by the server's task ids
}

// These are the purposes of sealed handles.
const (
	sealedRelayed = "relayed requestState"
	sealedTask    = "relayed taskId"
)

// handle is the sealed content of a handle.
type handle struct {
	Principal string `json:"p"`
	Server    string `json:"s"`
	Value     string `json:"h"`
}

func (h *handles) seal(kind, value string) string {
	raw, err := json.Marshal(handle{seal.Fingerprint(h.from.Principal), h.p.o.Legacy.Name, value})
	if err != nil {
		panic(err) // strings always have a JSON form
	}
	return h.p.o.Legacy.Seals.Seal(kind, raw)
}

// open returns the server's value of a handle, or false if the handle belongs to another client.
func (h *handles) open(kind, token string) (string, bool) {
	raw, err := h.p.o.Legacy.Seals.Open(kind, token)
	if err != nil {
		return "", false
	}
	var v handle
	if json.Unmarshal(raw, &v) != nil || v.Principal != seal.Fingerprint(h.from.Principal) || v.Server != h.p.o.Legacy.Name {
		return "", false
	}
	return v.Value, true
}

// unwrap replaces the client's handles by the server's handles. If a handle belongs to another client, unwrap returns
// an error.
func (h *handles) unwrap(r *bridge.Request, again *lower.Round) *jsonrpc.Message {
	if h.from.Principal == "" {
		return nil
	}
	switch {
	case again.Repeated() && !r.Doubtful():
		state := again.State()
		own, ok := h.open(sealedRelayed, state.Str)
		if !ok {
			return jsonrpc.InvalidParams("this requestState was not given to this client")
		}
		r.Message = r.Edited(jsonrpc.Edit{
			From: state.Index,
			To:   state.Index + len(state.Raw),
			Text: []byte(rawjson.Quote(own)),
		})
	case era.IsTask(r.Method):
		params := r.Whole()
		id := gjson.GetBytes(params, "taskId")
		own, ok := h.open(sealedTask, id.Str)
		if !ok {
			return jsonrpc.InvalidParams("there is no such task")
		}
		h.ids = map[string]string{own: id.Str}
		// The params are built anew, because the task's id is also in a header: duplicate members, and members that
		// some readers take for taskId, must not pass.
		params = rawjson.Edit(params, func(name, value []byte) []byte {
			if string(name) != "taskId" && bytes.EqualFold(name, []byte("taskId")) {
				return nil
			}
			return value
		})
		r.Message = jsonrpc.NewRequest(r.Method, rawjson.Set(params, "taskId", []byte(rawjson.Quote(own))))
	case r.Method == era.Listen:
		return h.unwrapTasks(r)
	case r.Doubtful() && era.MayAsk(r.Method):
		return jsonrpc.InvalidParams(bridge.NameDoubtful)
	}
	return nil
}

// unwrapTasks replaces the task ids of a subscription.
func (h *handles) unwrapTasks(r *bridge.Request) *jsonrpc.Message {
	params := r.Whole()
	wants, fault := subscribe.ReadListen(params)
	if fault != "" {
		return jsonrpc.InvalidParams(fault)
	}
	if !rawjson.Mentions(params, "taskIds") {
		return nil
	}
	h.ids = map[string]string{}
	for i, id := range wants.Tasks {
		own, ok := h.open(sealedTask, id)
		if !ok {
			return jsonrpc.InvalidParams("there is no such task")
		}
		h.ids[own], wants.Tasks[i] = id, own
	}
	r.Message = subscribe.Narrowed(params, "taskIds", wants.Tasks)
	return nil
}

// wrap replaces the server's handles by the client's handles.
func (h *handles) wrap(r *bridge.Request, m *jsonrpc.Message) *jsonrpc.Message {
	if h.from.Principal == "" {
		return m
	}
	m = m.Once()
	kind := m.Found().Type.Of(m.Result)
	switch {
	case bytes.Equal(kind, []byte(`"input_required"`)):
		return h.replace(m, "requestState", sealedRelayed)
	case bytes.Equal(kind, []byte(`"task"`)), era.IsTask(r.Method):
		return h.replace(m, "taskId", sealedTask)
	}
	return m
}

// replace seals one member of a result.
func (h *handles) replace(m *jsonrpc.Message, member, kind string) *jsonrpc.Message {
	var found gjson.Result
	n := 0
	gjson.ParseBytes(m.Result).ForEach(func(name, value gjson.Result) bool {
		if name.Str == member {
			found, n = value, n+1
		}
		return true
	})
	if n == 0 {
		return m
	}
	token, known := h.ids[found.Str]
	if !known {
		token = h.seal(kind, found.Str)
	}
	if n > 1 || found.Type != gjson.String || len(token) > seal.MaxToken {
		m.Release()
		return jsonrpc.NewError(nil, jsonrpc.CodeInternal, "the server's "+member+" is not usable", []byte(`{"bridge":"upstream_invalid"}`))
	}
	m.Edit(jsonrpc.Edit{
		From: found.Index,
		To:   found.Index + len(found.Raw),
		Text: []byte(rawjson.Quote(token)),
	})
	return m
}

// toClient returns a notification with the client's task ids.
func (h *handles) toClient(m *jsonrpc.Message) *jsonrpc.Message {
	switch m.Method {
	case "notifications/tasks":
		if id, ok := h.ids[gjson.GetBytes(m.Params, "taskId").Str]; ok {
			return jsonrpc.NewNotification(m.Method, rawjson.OneLine(rawjson.SetFirst(m.Params, "taskId", []byte(rawjson.Quote(id)))))
		}
	case era.Acknowledged:
		if had := gjson.GetBytes(m.Params, "notifications"); len(h.ids) > 0 && had.Get("taskIds").IsArray() {
			mine := []byte("[")
			for _, own := range had.Get("taskIds").Array() {
				if id, ok := h.ids[own.Str]; ok {
					if len(mine) > 1 {
						mine = append(mine, ',')
					}
					mine = append(mine, rawjson.Quote(id)...)
				}
			}
			what := rawjson.SetFirst([]byte(had.Raw), "taskIds", append(mine, ']'))
			return jsonrpc.NewNotification(m.Method, rawjson.OneLine(rawjson.SetFirst(m.Params, "notifications", what)))
		}
	}
	return m
}

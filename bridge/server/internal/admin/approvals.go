package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mcp-bridge/bridge/bridge/guard/approve"
)

// maxArguments bounds the arguments of a waiting call in an answer, in bytes.
const maxArguments = 4 << 10

// Waiting is a call that waits for an operator's decision.
type Waiting struct {
	ID        string `json:"id"`
	Server    string `json:"server"`
	Tool      string `json:"tool"` // the server's own name
	Principal string `json:"principal,omitempty"`
	Session   string `json:"session,omitempty"`
	Client    string `json:"client,omitempty"`
	// Arguments are without what looks like a secret.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Cut       bool            `json:"arguments_cut,omitempty"`
	Since     time.Time       `json:"since"`
	Until     time.Time       `json:"until"` // then the answer is no
	// Decisions are the decisions that can be made.
	Decisions []approve.Outcome `json:"decisions"`
}

// showApprovals shows the calls that wait for an operator.
func (o *Operator) showApprovals(*Call) (any, error) {
	rows := []Waiting{}
	for _, q := range o.Bridge.Approvals().Waiting() {
		w := Waiting{
			ID:        q.ID,
			Server:    q.Server,
			Tool:      q.Tool,
			Principal: q.Principal,
			Session:   q.Session,
			Client:    gjson.GetBytes(q.Client, "name").String(),
			Since:     q.Since,
			Until:     q.Until,
			Decisions: []approve.Outcome{approve.Once, approve.Denied},
		}
		if q.Remembers {
			w.Decisions = []approve.Outcome{approve.Once, approve.ForSession, approve.Denied}
		}
		if len(q.Arguments) > 0 {
			shown, whole := o.Calls.Traffic.Mask(q.Arguments, maxArguments)
			w.Arguments, w.Cut = shown, !whole
		}
		rows = append(rows, w)
	}
	return map[string][]Waiting{"waiting": rows}, nil
}

// decide makes a decision about a waiting call.
func (o *Operator) decide(c *Call) (any, error) {
	var asked struct {
		Decision approve.Outcome `json:"decision"`
	}
	if err := Read(c.Body, &asked); err != nil {
		return nil, err
	}
	switch asked.Decision {
	case approve.Once, approve.ForSession, approve.Denied:
	default:
		return nil, &Refusal{
			Status:  http.StatusBadRequest,
			Code:    "body",
			Message: "decision must be once, session or no",
		}
	}
	if err := o.Bridge.Approvals().Decide(c.Var("id"), asked.Decision, c.Principal); err != nil {
		return nil, &Refusal{
			Status:  http.StatusConflict,
			Code:    "conflict",
			Message: err.Error(),
		}
	}
	return struct{}{}, nil
}

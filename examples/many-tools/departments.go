package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// department is one of the servers, with the things that it keeps.
type department struct {
	name   string
	things []string
}

// departments are the forty servers, one a line: the name and what the server keeps.
var departments = func() (all []*department) {
	for line := range strings.Lines(`
		help: article
		calendar: event reminder room
		mail: message draft mailbox
		chat: channel post reaction
		contacts: person company address
		crm: lead deal customer
		billing: invoice payment discount
		payroll: salary bonus payslip
		travel: flight hotel expense
		hiring: candidate interview offer
		training: course lesson certificate
		wiki: page comment template
		files: document folder share
		photos: picture album face
		music: song playlist artist
		video: clip caption recording
		shop: product order return
		stock: item shelf delivery
		suppliers: supplier contract quote
		shipping: parcel label carrier
		fleet: vehicle driver trip
		kitchen: recipe ingredient menu
		garden: plant watering harvest
		health: patient appointment prescription
		lab: sample test result
		library: book loan reader
		school: pupil class grade
		sport: team match player
		news: headline newsletter subscriber
		ads: campaign audience banner
		code: repository branch review
		builds: pipeline job artifact
		bugs: bug milestone sprint
		servers: machine disk backup
		network: router firewall domain
		alerts: alert schedule runbook
		access: user role key
		legal: case clause signature
		taxes: filing receipt deadline
		weather: forecast station warning
	`) {
		if name, things, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			all = append(all, &department{name, strings.Fields(things)})
		}
	}
	return all
}()

// record is a thing that a department keeps.
type record struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	Note string `json:"note,omitempty"`
}

// store keeps the records of one kind of thing.
type store struct {
	mu   sync.Mutex // guards the rest
	last int
	all  []record
}

// change calls f with the record of that ID.
func (s *store) change(id int, f func(at int)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.all, func(r record) bool { return r.ID == id })
	if at < 0 {
		return fmt.Errorf("there is no id %d", id)
	}
	f(at)
	return nil
}

// These are the arguments of the tools.
type (
	byID struct {
		ID int `json:"id"`
	}
	byText struct {
		Text string `json:"text" jsonschema:"words of the name or the note"`
	}
	fields struct {
		Name string `json:"name"`
		Note string `json:"note,omitempty"`
	}
	change struct {
		ID   int    `json:"id"`
		Name string `json:"name"`
		Note string `json:"note,omitempty"`
	}
)

// server returns the department as a server of the SDK, with seven tools for each thing.
func (d *department) server() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: d.name, Version: "1.0.0"}, nil)
	for _, thing := range d.things {
		kept := &store{}
		add(s, "list_"+thing, "Lists all of kind "+thing+".", true, func(struct{}) (any, error) { return kept.found(""), nil })
		add(s, "count_"+thing, "Counts all of kind "+thing+".", true, func(struct{}) (any, error) { return len(kept.found("")), nil })
		add(s, "search_"+thing, "Finds each "+thing+" with a text in its name or note.", true, func(a byText) (any, error) { return kept.found(a.Text), nil })
		add(s, "get_"+thing, "Returns one "+thing+".", true, func(a byID) (r any, err error) {
			err = kept.change(a.ID, func(at int) { r = kept.all[at] })
			return r, err
		})
		add(s, "create_"+thing, "Creates a new "+thing+" and returns it.", false, func(a fields) (any, error) { return kept.create(a), nil })
		add(s, "update_"+thing, "Changes the name and the note of a "+thing+".", false, func(a change) (r any, err error) {
			err = kept.change(a.ID, func(at int) { kept.all[at] = record(a); r = a })
			return r, err
		})
		add(s, "delete_"+thing, "Deletes a "+thing+" for ever.", false, func(a byID) (any, error) {
			return "deleted", kept.change(a.ID, func(at int) { kept.all = slices.Delete(kept.all, at, at+1) })
		})
	}
	return s
}

func (s *store) create(a fields) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	r := record{s.last, a.Name, a.Note}
	s.all = append(s.all, r)
	return r
}

// found returns the records that contain the text.
func (s *store) found(text string) []record {
	s.mu.Lock()
	defer s.mu.Unlock()
	text = strings.ToLower(text)
	return slices.DeleteFunc(slices.Clone(s.all), func(r record) bool {
		return !strings.Contains(strings.ToLower(r.Name+" "+r.Note), text)
	})
}

// add gives s a tool whose result is JSON text.
func add[Arguments any](s *mcp.Server, name, about string, reads bool, run func(Arguments) (any, error)) {
	mcp.AddTool(s, &mcp.Tool{
		Name:        name,
		Description: about,
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: reads},
	}, func(_ context.Context, _ *mcp.CallToolRequest, a Arguments) (*mcp.CallToolResult, any, error) {
		r, err := run(a)
		if err != nil {
			return nil, nil, err
		}
		text, err := json.Marshal(r)
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, nil, nil
	})
}

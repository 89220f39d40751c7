package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// pages is the web that this engine searches.
var pages = []struct{ title, url, text string }{
	{"Model Context Protocol", "https://modelcontextprotocol.io/", "an open protocol that connects models with tools and data"},
	{"Webhook", "https://en.wikipedia.org/wiki/Webhook", "a way for one program to tell another over HTTP that something has happened"},
	{"Workflow", "https://en.wikipedia.org/wiki/Workflow", "steps of work in their order, often run by an engine that calls tools"},
	{"Abacus", "https://en.wikipedia.org/wiki/Abacus", "one of the oldest tools for calculating"},
}

// search is the workflow web_search.
func search(in map[string]any) (any, error) {
	query, _ := in["query"].(string)
	limit, ok := in["limit"].(float64)
	if !ok {
		limit = 3
	}
	found := []map[string]string{}
	for _, p := range pages {
		if len(found) < int(limit) && strings.Contains(strings.ToLower(p.title+" "+p.text), strings.ToLower(query)) {
			found = append(found, map[string]string{"title": p.title, "url": p.url, "text": p.text})
		}
	}
	return map[string]any{"took_ms": 1, "pages": found}, nil
}

// calculate is the workflow calculate.
func calculate(in map[string]any) (any, error) {
	text, _ := in["expression"].(string)
	c := &calculation{rest: text}
	v, err := c.sum(0)
	if err == nil && c.next() != 0 {
		err = fmt.Errorf("%q is not expected there", c.rest)
	}
	if err != nil {
		return nil, err
	}
	return map[string]any{"value": v}, nil
}

// calculation is an expression. rest is its unread part.
type calculation struct{ rest string }

// next returns the next character that is not blank, or 0 at the end.
func (c *calculation) next() byte {
	c.rest = strings.TrimLeft(c.rest, " ")
	if c.rest == "" {
		return 0
	}
	return c.rest[0]
}

// maxNesting bounds nested parentheses and signs.
const maxNesting = 100

func (c *calculation) sum(depth int) (float64, error) {
	v, err := c.product(depth)
	for err == nil && (c.next() == '+' || c.next() == '-') {
		sign := 1.0
		if c.next() == '-' {
			sign = -1
		}
		c.rest = c.rest[1:]
		var w float64
		w, err = c.product(depth)
		v += sign * w
	}
	return v, err
}

func (c *calculation) product(depth int) (float64, error) {
	v, err := c.value(depth)
	for err == nil && (c.next() == '*' || c.next() == '/') {
		by := c.next() == '/'
		c.rest = c.rest[1:]
		var w float64
		switch w, err = c.value(depth); {
		case by && w == 0 && err == nil:
			err = errors.New("a division by zero")
		case by:
			v /= w
		default:
			v *= w
		}
	}
	return v, err
}

func (c *calculation) value(depth int) (float64, error) {
	if depth > maxNesting {
		return 0, errors.New("the expression is nested too deep")
	}
	switch c.next() {
	case '-':
		c.rest = c.rest[1:]
		v, err := c.value(depth + 1)
		return -v, err
	case '(':
		c.rest = c.rest[1:]
		v, err := c.sum(depth + 1)
		if err == nil && c.next() != ')' {
			err = errors.New("a parenthesis is not closed")
		}
		if err == nil {
			c.rest = c.rest[1:]
		}
		return v, err
	}
	digits := c.rest[:len(c.rest)-len(strings.TrimLeft(c.rest, "0123456789."))]
	c.rest = c.rest[len(digits):]
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, fmt.Errorf("a number is missing before %q", c.rest)
	}
	return v, nil
}

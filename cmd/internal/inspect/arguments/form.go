package arguments

import (
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Option is a possible value of a field: as JSON, and as text for people.
type Option struct{ Raw, Label string }

// Options returns the enum values of a field, or of a list's items, with their titles.
func (s Schema) Options(v gjson.Result) []Option {
	if slices.Contains(s.kinds(v), "array") {
		v = s.items(v)
	}
	labels := v.Get("enumNames").Array()
	var all []Option
	for i, raw := range s.choices(v) {
		o := Option{raw, Plain(raw)}
		if i < len(labels) {
			o.Label += " (" + labels[i].String() + ")"
		}
		for _, key := range []string{"oneOf", "anyOf"} {
			for _, one := range v.Get(key).Array() {
				if t := one.Get("title").String(); t != "" && one.Get("const").Raw == raw {
					o.Label += " (" + t + ")"
				}
			}
		}
		all = append(all, o)
	}
	return all
}

// Reply converts the user's input for a field to JSON.
func (s Schema) Reply(v gjson.Result, choices []Option, line string) (string, error) {
	if !slices.Contains(s.kinds(v), "array") {
		return s.single(v, choices, line)
	}
	var items []string
	for part := range strings.SplitSeq(line, ",") {
		item, err := s.single(s.items(v), choices, strings.TrimSpace(part))
		if err != nil {
			return "", err
		}
		items = append(items, item)
	}
	if least := v.Get("minItems"); least.Exists() && len(items) < int(least.Int()) {
		return "", fmt.Errorf("choose %s at least", least.Raw)
	}
	if most := v.Get("maxItems"); most.Exists() && len(items) > int(most.Int()) {
		return "", fmt.Errorf("choose %s at most", most.Raw)
	}
	return "[" + strings.Join(items, ",") + "]", nil
}

func (s Schema) single(v gjson.Result, choices []Option, line string) (string, error) {
	if len(choices) > 0 {
		for i, o := range choices {
			if line == Plain(o.Raw) || line == fmt.Sprint(i+1) {
				return o.Raw, nil
			}
		}
		return "", errors.New("choose one of the values, by itself or by its number")
	}
	kinds := s.kinds(v)
	if slices.Equal(kinds, []string{"boolean"}) {
		switch strings.ToLower(line) {
		case "y", "yes":
			line = "true"
		case "n", "no":
			line = "false"
		}
	}
	raw, err := convert(kinds, line)
	if err != nil {
		return "", err
	}
	return raw, limits(v, gjson.Parse(raw))
}

// limits checks a value against the limits that a form may set.
func limits(v, value gjson.Result) error {
	length := int64(len([]rune(value.String())))
	isText, isNumber := value.Type == gjson.String, value.Type == gjson.Number
	for _, l := range []struct {
		key    string
		broken func(limit gjson.Result) bool
		text   string
	}{
		{"minLength", func(l gjson.Result) bool { return isText && length < l.Int() }, "needs so many characters at least: "},
		{"maxLength", func(l gjson.Result) bool { return isText && length > l.Int() }, "may have so many characters at most: "},
		{"minimum", func(l gjson.Result) bool { return isNumber && value.Float() < l.Float() }, "must be at least "},
		{"maximum", func(l gjson.Result) bool { return isNumber && value.Float() > l.Float() }, "must be at most "},
	} {
		if limit := v.Get(l.key); limit.Exists() && l.broken(limit) {
			return errors.New(l.text + limit.Raw)
		}
	}
	if isText && !hasFormat(v.Get("format").String(), value.String()) {
		return fmt.Errorf("this is no %s", v.Get("format").String())
	}
	return nil
}

// hasFormat reports whether text has a format of a form. With an unknown format, every text is accepted.
func hasFormat(format, text string) bool {
	var err error
	switch format {
	case "email":
		var a *mail.Address
		a, err = mail.ParseAddress(text)
		return err == nil && a.Address == text
	case "uri":
		var u *url.URL
		u, err = url.Parse(text)
		return err == nil && u.Scheme != ""
	case "date":
		_, err = time.Parse(time.DateOnly, text)
	case "date-time":
		_, err = time.Parse(time.RFC3339, text)
	}
	return err == nil
}

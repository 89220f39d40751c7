package setting_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/bridge/internal/setting"
)

type zoo struct {
	animals
	Name  string            `yaml:"name" default:"zoo" text:"lower"`
	Alias string            `yaml:"alias" text:"lower"`
	Tags  []string          `yaml:"tags" text:"lower"`
	Doors map[string]string `yaml:"doors" names:"lower"`
	Open  bool              `yaml:"open" default:"true"`
	Feed  time.Duration     `yaml:"feed,off" min:"1m" why:"they eat slowly"`
	Nap   time.Duration     `yaml:"nap" min:"0s" max:"1h"`
	Walk  time.Duration     `yaml:"walk"`
	Food  setting.Size      `yaml:"food" default:"16MiB"`
	Mode  string            `yaml:"mode" default:"day" one_of:"day night"`
	Mood  string            `yaml:"mood" one_of:"good bad"`
	Shop  shop              `yaml:"shop"`
	Pond  *shop             `yaml:"pond"`
	Halls []shop            `yaml:"halls"`
	Gate  gate              `yaml:"gate,set"`
	Inner int               `yaml:"-"`
}

// animals are embedded, so their keys are those of the zoo.
type animals struct {
	Lions int `yaml:"lions" default:"3" max:"5"`
	Mice  int `yaml:"mice"`
}

type shop struct {
	Tills int `yaml:"tills" default:"2" min:"1" max:"9"`
	Shut  bool
}

func (s *shop) Validate() error {
	if s.Shut {
		return errors.New("tills are shut\ndoors are shut")
	}
	return nil
}

type gate struct {
	Width int `yaml:"width" default:"4"`
}

// texts has one form.
var texts = setting.Texts{"lower": func(s string) (string, error) {
	if s == "" || s != strings.ToLower(s) {
		return "", errors.New("must be in lower case")
	}
	return strings.TrimSpace(s), nil
}}

// full returns a zoo with all defaults.
func full() *zoo {
	z := &zoo{animals: animals{Mice: 1}, Walk: 1}
	setting.Fill(z)
	return z
}

func TestFill(t *testing.T) {
	z := &zoo{animals: animals{Lions: 1}, Name: "own"}
	setting.Fill(z)
	want := zoo{animals: animals{Lions: 1}, Name: "own", Open: true, Food: 16 << 20, Mode: "day"}
	if !reflect.DeepEqual(*z, want) {
		t.Errorf("filled: %+v, want %+v", *z, want)
	}
	if v, ok := setting.Standard(reflect.TypeFor[shop]()); !ok || v.Interface().(shop).Tills != 2 {
		t.Errorf("the standard is %v, %v", v, ok)
	}
	if _, ok := setting.Standard(reflect.TypeFor[struct {
		A int `yaml:"a"`
	}]()); ok {
		t.Error("a struct without defaults has some")
	}
}

// The keys of an embedded struct are those of the outer one.
func TestKeys(t *testing.T) {
	keys := setting.Keys(reflect.TypeFor[zoo]())
	if got := strings.Join(keys, " "); got != "lions mice name alias tags doors open feed nap walk food mode mood shop pond halls gate" {
		t.Errorf("keys: %s", got)
	}
	z := full()
	f := setting.ByKey(reflect.TypeFor[zoo](), "lions")
	if got := reflect.ValueOf(z).Elem().FieldByIndex(f.Index).Int(); got != 3 || setting.ByKey(reflect.TypeFor[zoo](), "tigers") != nil {
		t.Errorf("lions are %d", got)
	}
}

// Each rule has its message.
func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*zoo)
		want   string
	}{
		{"none", func(*zoo) {}, ""},
		{"a count that is required", func(z *zoo) { z.Mice = 0 }, "mice is 0: must be at least 1"},
		{"too many", func(z *zoo) { z.Lions = 6 }, "lions is 6: must be at most 5"},
		{"a form", func(z *zoo) { z.Name = "Zoo" }, `name is "Zoo": must be in lower case`},
		{"a form of a text that may be empty", func(z *zoo) { z.Alias = "Zoo" }, `alias is "Zoo": must be in lower case`},
		{"an item", func(z *zoo) { z.Tags = []string{"a", "B"} }, `tags is "B": must be in lower case`},
		{"a name", func(z *zoo) { z.Doors = map[string]string{"A": "x"} }, "doors: must be in lower case"},
		{"too soon", func(z *zoo) { z.Feed = time.Second }, "feed is 1s: must be at least 1m: they eat slowly"},
		{"too long", func(z *zoo) { z.Nap = 2 * time.Hour }, "nap is 2h: must be 0s to 1h"},
		{"negative", func(z *zoo) { z.Walk = -1 }, "walk is -1ns: must not be negative"},
		{"no time", func(z *zoo) { z.Walk = 0 }, "walk is 0s: must be longer than 0"},
		{"a size", func(z *zoo) { z.Food = 5 }, "food is 5B: must be at least 1KiB"},
		{"a word", func(z *zoo) { z.Mode = "dusk" }, `mode is "dusk": must be day or night`},
		{"a word that is required", func(z *zoo) { z.Mode = "" }, `mode is "": must be day or night`},
		{"another word", func(z *zoo) { z.Mood = "fair" }, `mood is "fair": must be good or bad`},
		{"a part", func(z *zoo) { z.Shop.Tills = 10 }, "shop: tills is 10: must be 1 to 9"},
		{"a part behind a pointer", func(z *zoo) { z.Pond = &shop{Tills: -1} }, "pond: tills is -1: must be 1 to 9"},
		{"a part with rules of its own", func(z *zoo) { z.Halls = []shop{{}, {Shut: true}} }, "halls: item 2: tills are shut\nhalls: item 2: doors are shut"},
		{"a part in which zero is a fault", func(z *zoo) { z.Gate.Width = -1 }, "gate: width is -1: must be at least 1"},
	} {
		z := full()
		test.change(z)
		got := ""
		if err := errors.Join(setting.Faults(z, texts)...); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %s\nwant %s", test.name, got, test.want)
		}
	}
}

// A tag that does not fit its field is found when the struct is first used.
func TestWrongTag(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	setting.Fields(reflect.TypeFor[struct {
		A time.Duration `yaml:"a" default:"5"`
	}]())
}

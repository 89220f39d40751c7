package overlay

import (
	"regexp"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/theory/jsonpath"
	"github.com/theory/jsonpath/registry"
	"github.com/theory/jsonpath/spec"
)

// parser parses JSONPath. The functions match and search are our own: those of the library, in version
// 0.11.0, panic on missing values, and match too much for a|b.
var parser = jsonpath.NewParser(jsonpath.WithRegistry(functions()))

func functions() *registry.Registry {
	r := registry.New()
	expressions, _ := lru.New[string, *regexp.Regexp](64) // the size is valid
	for name, form := range map[string][2]string{"match": {`\A(?:`, `)\z`}, "search": {"(?:", ")"}} {
		f := r.Get(name)
		library := *f
		*f = *spec.Extension(name, spec.FuncLogical, library.Validate, func(args []spec.PathValue) spec.PathValue {
			text, ok := textOf(args[0])
			pattern, also := textOf(args[1])
			if !ok || !also {
				return spec.LogicalFalse
			}
			compiled, known := expressions.Get(pattern + name)
			if !known {
				compiled, _ = regexp.Compile(form[0] + pattern + form[1]) // nil matches nothing
				expressions.Add(pattern+name, compiled)
			}
			return spec.Logical(compiled != nil && compiled.MatchString(text))
		})
	}
	return r
}

// textOf returns the text of an argument. It reports false for other values.
func textOf(arg spec.PathValue) (string, bool) {
	v := spec.ValueFrom(arg)
	if v == nil {
		return "", false
	}
	text, ok := v.Value().(string)
	return text, ok
}

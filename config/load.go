package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileBytesMax bounds the configuration file.
const fileBytesMax = 1 << 20

// Sources are the places settings come from, beside the defaults.
type Sources struct {
	// File is the path of the YAML file, or "" for none. WARREN_CONFIG in Env
	// names it when File is empty.
	File string
	// Env looks up an environment variable, as os.LookupEnv does. Nil means
	// an empty environment. A variable set to "" counts as not set.
	Env func(name string) (string, bool)
	// Flags holds the flags that were given on the command line, by name.
	Flags map[string]string
}

// Load merges the sources over the defaults and validates the result. The
// error is Problems when settings are wrong, with the place of each that could
// not be read, and another error when the file could not be opened.
func Load(src Sources) (Config, error) {
	c := Default()
	var problems Problems
	env := src.Env
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	file := src.File
	if file == "" {
		file, _ = env(EnvPrefix + "CONFIG")
	}
	options := Options()
	if file != "" {
		values, err := readFile(file, options)
		if p, ok := errors.AsType[Problems](err); ok {
			problems = append(problems, p...)
		} else if err != nil {
			return Config{}, err
		}
		problems = append(problems, apply(&c, options, func(o Option) (string, string, bool) {
			v, ok := values[o.Name]
			return v, file + ": " + o.Name, ok
		})...)
	}
	problems = append(problems, apply(&c, options, func(o Option) (string, string, bool) {
		v, ok := env(o.Env())
		return v, o.Env(), ok && v != ""
	})...)
	problems = append(problems, apply(&c, options, func(o Option) (string, string, bool) {
		v, ok := src.Flags[o.Name]
		return v, "--" + o.Name, ok
	})...)
	if invalid, ok := errors.AsType[Problems](c.Validate()); ok {
		problems = append(problems, invalid...)
	}
	if len(problems) > 0 {
		return Config{}, problems
	}
	return c, nil
}

// apply sets every option that source has a value for. source returns the
// value and the name of the place it comes from.
func apply(c *Config, options []Option, source func(Option) (value, place string, ok bool)) Problems {
	var p Problems
	for _, o := range options {
		value, place, ok := source(o)
		if !ok {
			continue
		}
		if err := o.set(c, value); err != nil {
			p = append(p, fmt.Sprintf("%s: %v", place, err))
		}
	}
	return p
}

// readFile returns the scalar values of the file by key, in the form a flag
// would have them, and Problems for keys nobody knows and values of a wrong
// shape.
func readFile(path string, options []Option) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	if len(data) > fileBytesMax {
		return nil, Problems{fmt.Sprintf("%s: larger than %d bytes", path, fileBytesMax)}
	}
	return parse(path, data, options)
}

// parse is readFile on bytes; path only appears in problems.
func parse(path string, data []byte, options []Option) (map[string]string, error) {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil // an empty file sets nothing
	case err != nil:
		return nil, Problems{fmt.Sprintf("%s: %s", path, oneLine(err.Error()))}
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, Problems{path + ": holds more than one document"}
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, Problems{path + ": must be a list of key: value lines"}
	}
	values := map[string]string{}
	var p Problems
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		place := fmt.Sprintf("%s:%d", path, key.Line)
		if !slices.ContainsFunc(options, func(o Option) bool { return o.Name == key.Value }) {
			p = append(p, fmt.Sprintf("%s: unknown key %q%s", place, key.Value, suggestion(key.Value, options)))
			continue
		}
		if _, twice := values[key.Value]; twice {
			p = append(p, fmt.Sprintf("%s: key %q is given twice", place, key.Value))
			continue
		}
		value, problem := scalar(node)
		if problem != "" {
			p = append(p, fmt.Sprintf("%s: %s %s", place, key.Value, problem))
			continue
		}
		values[key.Value] = value
	}
	if len(p) > 0 {
		return values, p
	}
	return values, nil
}

// scalar renders a value as a flag would give it: lists are joined by commas.
func scalar(n *yaml.Node) (value, problem string) {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "", "has no value"
		}
		return n.Value, ""
	case yaml.SequenceNode:
		items := make([]string, 0, len(n.Content))
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return "", "must be a list of plain values"
			}
			items = append(items, item.Value)
		}
		return strings.Join(items, ","), ""
	}
	return "", "must be a plain value"
}

// suggestion names the key that differs from the given one only in case or in
// the kind of separator.
func suggestion(key string, options []Option) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(s))
	}
	for _, o := range options {
		if plain(o.Name) == plain(key) {
			return fmt.Sprintf(", did you mean %q?", o.Name)
		}
	}
	return ""
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

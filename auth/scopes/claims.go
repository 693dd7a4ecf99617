package scopes

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// collect finds the scopes that are at a path in the claims: at the claim of that name, or from object to object, where a list stands for all that is in it.
func (c Config) collect(claims map[string]any, path string) []string {
	if v, ok := claims[path]; ok {
		return c.walk(v, nil, nil)
	}
	return c.walk(claims, strings.Split(path, "."), nil)
}

// walk appends what it finds, and stops when that is more than a token may have.
func (c Config) walk(v any, path, list []string) []string {
	switch v := v.(type) {
	case map[string]any:
		if len(path) > 0 {
			return c.walk(v[path[0]], path[1:], list)
		}
		for _, scope := range texts(v[c.Audience]) {
			list = append(list, c.Prefix+scope)
		}
	case []any:
		if len(path) == 0 {
			list = append(list, texts(v)...)
		}
		for _, each := range v {
			_, is := each.(map[string]any)
			if is && len(list) <= Max {
				list = c.walk(each, path, list)
			}
		}
	case string:
		if len(path) == 0 {
			list = append(list, texts(v)...)
		}
	}
	return list
}

// texts are the scopes of a text with spaces, or of a list.
func texts(v any) (list []string) {
	switch v := v.(type) {
	case string:
		return strings.Fields(v)
	case []any:
		for _, each := range v {
			if s, ok := each.(string); ok {
				list = append(list, s)
			}
		}
	}
	return list
}

// ParseAliases reads a JSON object of what names stand for: scopes in one text, or in a list.
func ParseAliases(text []byte) (map[string][]string, error) {
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("no JSON object of aliases: %w", err)
	}
	if all == nil {
		return nil, errors.New("no JSON object of aliases")
	}
	aliases := make(map[string][]string, len(all))
	for name, v := range all {
		list := texts(v)
		if elements, ok := v.([]any); len(list) == 0 || ok && len(list) != len(elements) {
			return nil, fmt.Errorf("alias %q is neither a text with scopes nor a list of them", name)
		}
		aliases[name] = list
	}
	return aliases, nil
}

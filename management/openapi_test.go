package management

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestOpenAPI compares the operations of the document with those that are served, and its references with what there is.
func TestOpenAPI(t *testing.T) {
	var doc struct {
		Paths      map[string]map[string]any `yaml:"paths"`
		Components map[string]map[string]any `yaml:"components"`
		Tags       []struct{ Name string }   `yaml:"tags"`
	}
	if err := yaml.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	var documented, served []string
	for path, item := range doc.Paths {
		for method := range item {
			if method != "parameters" {
				documented = append(documented, strings.ToUpper(method)+" /api"+path)
			}
		}
	}
	served = append(served, newFakeCluster("a").apis["a"].patterns...)
	served = append(served, "POST /api/warren/recovery/cluster") // by cmd/node, on the control socket
	slices.Sort(served)
	slices.Sort(documented)
	for _, p := range served {
		if !slices.Contains(documented, p) {
			t.Errorf("%s is served, and not in management/openapi.yaml: add it there", p)
		}
	}
	for _, p := range documented {
		if !slices.Contains(served, p) {
			t.Errorf("%s is in management/openapi.yaml, and not served", p)
		}
	}
	tags := map[string]bool{}
	for _, tag := range doc.Tags {
		tags[tag.Name] = true
	}
	for path, item := range doc.Paths {
		for _, n := range wildcard.FindAllStringSubmatch(path, -1) {
			if !strings.Contains(strings.Join(names(item["parameters"]), " "), n[1]) {
				t.Errorf("%s does not describe {%s}", path, n[1])
			}
		}
		for _, method := range slices.Sorted(maps.Keys(item)) {
			op, ok := item[method].(map[string]any)
			if !ok {
				continue
			}
			if text, _ := op["summary"].(string); text == "" || op["responses"] == nil {
				t.Errorf("%s %s says nothing", method, path)
			}
			for _, tag := range op["tags"].([]any) {
				if !tags[tag.(string)] {
					t.Errorf("%s %s has the tag %v, which is not listed", method, path, tag)
				}
			}
		}
	}
	references(t, doc.Paths, doc.Components)
	references(t, doc.Components, doc.Components)
}

func names(parameters any) (list []string) {
	all, _ := parameters.([]any)
	for _, p := range all {
		name, _ := p.(map[string]any)["name"].(string)
		list = append(list, name)
	}
	return list
}

// references finds what $ref names.
func references(t *testing.T, v any, components map[string]map[string]any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]map[string]any:
		for _, x := range v {
			references(t, x, components)
		}
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			parts := strings.Split(ref, "/")
			if len(parts) != 4 || components[parts[2]][parts[3]] == nil {
				t.Errorf("%s is not there", ref)
			}
		}
		for _, x := range v {
			references(t, x, components)
		}
	case []any:
		for _, x := range v {
			references(t, x, components)
		}
	}
}

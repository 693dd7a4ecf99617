package nemesis

import (
	"fmt"
	"strings"
)

// All returns every nemesis.
func All() []Nemesis {
	return []Nemesis{
		{Name: "kill", Begin: kill},
		{Name: "kill-all", Begin: killAll},
		{Name: "restart", Begin: restart},
		{Name: "pause", Begin: pause},
		{Name: "partition-halves", Links: true, Begin: partition(halves)},
		{Name: "partition-ring", Links: true, Begin: partition(ring)},
		{Name: "partition-one", Links: true, Begin: partition(isolated)},
		{Name: "partition-deaf", Links: true, Begin: partition(deaf)},
		{Name: "partition-mute", Links: true, Begin: partition(mute)},
		{Name: "partition-flapping", Links: true, Begin: flapping},
		{Name: "slow", Links: true, Begin: slow},
		{Name: "lossy", Links: true, Begin: lossy},
	}
}

// groups are names for several.
var groups = map[string]func(Nemesis) bool{
	"all":       func(Nemesis) bool { return true },
	"partition": func(n Nemesis) bool { return strings.HasPrefix(n.Name, "partition-") },
	"none":      func(Nemesis) bool { return false },
}

// Select returns the nemeses that the names stand for, those of groups among them. Without
// links, those that need them are left out.
func Select(names []string, links bool) ([]Nemesis, error) {
	var list []Nemesis
	taken := map[string]bool{}
	for _, name := range names {
		found := groups[name] != nil
		for _, n := range All() {
			in := n.Name == name || groups[name] != nil && groups[name](n)
			found = found || in
			if in && !taken[n.Name] && (links || !n.Links) {
				taken[n.Name] = true
				list = append(list, n)
			}
		}
		if !found {
			return nil, fmt.Errorf("no nemesis %q: there are %s, and all, partition, none", name, strings.Join(Names(), ", "))
		}
	}
	return list, nil
}

// Names returns the names of all nemeses.
func Names() []string {
	var names []string
	for _, n := range All() {
		names = append(names, n.Name)
	}
	return names
}

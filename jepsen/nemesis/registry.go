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
		{Name: "power", Within: true, Prepare: forgetful, Begin: power},
		{Name: "disk-slow", Within: true, Begin: diskSlow},
		{Name: "disk-fail", Within: true, Begin: diskFail},
		{Name: "disk-full", Within: true, Begin: diskFull},
		{Name: "clock", Within: true, Begin: clock},
		{Name: "failpoint", Within: true, Begin: atFailpoint},
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
	"disk":      func(n Nemesis) bool { return strings.HasPrefix(n.Name, "disk-") },
	"within":    func(n Nemesis) bool { return n.Within },
	"none":      func(Nemesis) bool { return false },
}

// Select returns the nemeses that the names stand for, those of groups among them. Those that
// need links, or nodes that can be broken from within, are left out without these.
func Select(names []string, links, within bool) ([]Nemesis, error) {
	var list []Nemesis
	taken := map[string]bool{}
	for _, name := range names {
		found := groups[name] != nil
		for _, n := range All() {
			in := n.Name == name || groups[name] != nil && groups[name](n)
			found = found || in
			if in && !taken[n.Name] && (links || !n.Links) && (within || !n.Within) {
				taken[n.Name] = true
				list = append(list, n)
			}
		}
		if !found {
			return nil, fmt.Errorf("no nemesis %q: there are %s, and all, partition, disk, within, none", name, strings.Join(Names(), ", "))
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

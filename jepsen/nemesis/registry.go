package nemesis

import (
	"fmt"
	"strings"
	"time"
)

// How long confirms may stay away (docs/guarantees.md, docs/operations.md) on an idle machine.
const (
	failover = time.Second // a node has ended, which others see at once
	// silent: a node is not heard. That is found after a second and a half, or three more by one that
	// was frozen itself a moment before; and syncs of half a second make everything slow.
	silent = 5 * time.Second
	// slowly: packets take up to 0.4 s or are lost, on all links of a node; a round for an election takes
	// up to 3 s then.
	slowly = 8 * time.Second

	// Calm is the longest pause without any fault.
	Calm = time.Second

	starting     = 3 * time.Second // a node starts and is a member again
	reconnecting = time.Second
)

// All returns every nemesis.
func All() []Nemesis {
	return []Nemesis{
		{Name: "kill", Pause: failover, After: starting, Begin: kill},
		{Name: "kill-all", After: starting, Begin: killAll},
		{Name: "restart", Pause: failover, After: starting, Begin: restart},
		{Name: "move", Pause: failover, After: starting, Links: true, Begin: move},
		{Name: "members", Pause: failover, After: reconnecting, Begin: members},
		{Name: "pause", Pause: silent, After: reconnecting, Begin: pause},
		{Name: "power", After: starting, Within: true, Prepare: forgetful, Begin: power},
		{Name: "disk-slow", Pause: silent, After: reconnecting, Within: true, Begin: diskSlow},
		{Name: "disk-hang", Pause: silent, After: syncHangMax, Within: true, Begin: diskHang},
		{Name: "disk-fail", Pause: failover, After: starting, Within: true, Begin: diskFail},
		{Name: "disk-full", After: starting, Within: true, Begin: diskFull},
		{Name: "clock", Pause: failover, After: starting, Within: true, Begin: clock},
		{Name: "failpoint", Pause: failover, After: starting, Within: true, Begin: atFailpoint},
		{Name: "partition-halves", Pause: silent, After: reconnecting, Links: true, Begin: partition(halves)},
		{Name: "partition-ring", Pause: silent, After: reconnecting, Links: true, Begin: partition(ring)},
		{Name: "partition-one", Pause: silent, After: reconnecting, Links: true, Begin: partition(isolated)},
		{Name: "partition-deaf", Pause: silent, After: reconnecting, Links: true, Begin: partition(deaf)},
		{Name: "partition-mute", Pause: silent, After: reconnecting, Links: true, Begin: partition(mute)},
		{Name: "partition-flapping", Pause: silent, After: reconnecting, Links: true, Begin: flapping},
		{Name: "slow", Pause: slowly, After: reconnecting, Links: true, Begin: slow},
		{Name: "lossy", Pause: slowly, After: reconnecting, Links: true, Begin: lossy},
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

package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// memoryUnits are those of rabbitmq-diagnostics, in bytes.
var memoryUnits = map[string]float64{
	"bytes": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// memoryVerb is memory_breakdown of rabbitmq-diagnostics.
func memoryVerb(t *tool) *cobra.Command {
	unit := "mb"
	cmd := t.command(verb{
		use: "memory_breakdown", short: "Show what the node's memory is used for",
		long: "Show what the node's memory is used for, the largest part first. The parts are what Go's runtime holds, and no byte\n" +
			"is in two; what queues take is counted about. The alarm goes by what is used: the total without what is free or was never touched.",
		run: func(ctx context.Context, s *session, _ []string) error { return memoryBreakdown(ctx, s, unit) },
	})
	cmd.Flags().StringVar(&unit, "unit", unit, "`unit` of the figures: "+strings.Join(slices.Sorted(maps.Keys(memoryUnits)), ", "))
	return cmd
}

type memoryPart struct {
	Part  string `json:"part"`
	Bytes uint64 `json:"bytes"`
	About string `json:"about"`
}

func memoryBreakdown(ctx context.Context, s *session, unit string) error {
	size, ok := memoryUnits[strings.ToLower(unit)]
	if !ok {
		return usage("unit '%s' is none of %s", unit, strings.Join(slices.Sorted(maps.Keys(memoryUnits)), ", "))
	}
	var m struct {
		Node  string       `json:"node"`
		Used  uint64       `json:"used"`
		Limit uint64       `json:"limit"`
		Total uint64       `json:"total"`
		Parts []memoryPart `json:"parts"`
	}
	if err := s.get(ctx, path("warren", "memory"), &m); err != nil {
		return found(err, errorf(ExitSoftware, "node %s does not know of this", s.name))
	}
	in := func(bytes uint64) json.Number {
		if size == 1 {
			return json.Number(strconv.FormatUint(bytes, 10))
		}
		return json.Number(strconv.FormatFloat(float64(bytes)/size, 'f', 4, 64))
	}
	s.say("Reporting memory breakdown on node %s, in %s: %s used, the alarm begins at %s ...", m.Node, unit, in(m.Used), in(m.Limit))
	slices.SortStableFunc(m.Parts, func(a, b memoryPart) int { return cmp.Compare(b.Bytes, a.Bytes) })
	var rows []row
	for _, p := range m.Parts {
		percent := 100 * float64(p.Bytes) / float64(max(1, m.Total))
		rows = append(rows, row{"part": p.Part, "memory": in(p.Bytes), "percent": json.Number(strconv.FormatFloat(percent, 'f', 1, 64)), "about": p.About})
	}
	return s.list([]string{"part", "memory", "percent", "about"}, rows)
}

package rabbitconf

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Print writes a configuration file for `warren serve --config`, with remarks as comments: first what somebody has to look at.
func (t Translation) Print(w io.Writer) error {
	b := bufio.NewWriter(w)
	settings := slices.Clone(t.Settings)
	slices.SortStableFunc(settings, func(x, y Setting) int { return cmp.Compare(x.Name, y.Name) })
	settings = lasts(settings)
	if len(settings) == 0 {
		fmt.Fprintln(b, "{} # nothing to set")
	}
	for _, s := range settings {
		var from []string
		for _, e := range s.From {
			from = append(from, e.Place())
		}
		fmt.Fprintf(b, "%s: %s # %s\n", s.Name, strconv.Quote(s.Value), strings.Join(from, ", "))
	}
	for _, part := range []struct {
		title string
		todo  bool
	}{{"To look at:", true}, {"Nothing to do:", false}} {
		first := true
		for _, r := range t.Remarks {
			if r.Todo != part.todo {
				continue
			}
			if first {
				fmt.Fprintf(b, "\n# %s\n", part.title)
				first = false
			}
			fmt.Fprintf(b, "# - %s: %s = %s: %s\n", r.Place(), r.Key, oneLine(r.Value), r.Text)
		}
	}
	return b.Flush()
}

// lasts leaves the last setting of each name: of two keys for one setting the later topic's.
func lasts(sorted []Setting) []Setting {
	var out []Setting
	for i, s := range sorted {
		if i+1 == len(sorted) || sorted[i+1].Name != s.Name {
			out = append(out, s)
		}
	}
	return out
}

// oneLine is a value in a comment: on one line, without what YAML does not allow.
func oneLine(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

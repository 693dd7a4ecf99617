package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// line is one run as it was written down.
type line map[string]any

func (l line) text(field string) string { s, _ := l[field].(string); return s }

// figure returns a number; what is zero is left out of lines.
func (l line) figure(field string) float64 { f, _ := l[field].(float64); return f }

func readLines(file string) (lines []line, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for n, text := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n+1, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// tabulate prints the table of files that were written before.
func tabulate(files []string) error {
	if len(files) == 0 {
		return errors.New("which files?")
	}
	var all []line
	for _, file := range files {
		lines, err := readLines(file)
		if err != nil {
			return err
		}
		all = append(all, lines...)
	}
	fmt.Print(markdown(all))
	return nil
}

// markdown sums up runs: medians, with the least and the most in brackets.
func markdown(lines []line) string {
	var b strings.Builder
	b.WriteString("| row | work | figure | target | Warren | RabbitMQ | RabbitMQ 4 | NATS, synced | NATS | Warren ÷ the better RabbitMQ | Warren ÷ NATS | runs |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, w := range slices.Concat(works, shapes) {
		for _, f := range w.figures {
			values := map[string][]float64{}
			for _, l := range lines {
				// A run that failed has no figures; one that lost messages has, and row 18 tells.
				if l.text("row") == w.id && l["time"] != nil {
					values[l.text("system")] = append(values[l.text("system")], l.figure(f.field))
				}
			}
			if len(values) == 0 {
				continue
			}
			b.WriteString("| " + w.id + " | " + w.title + " | " + f.title + " | " + f.target + " | ")
			for _, s := range systems {
				b.WriteString(cell(values[s]) + " | ")
			}
			b.WriteString(ratio(values[warren], better(f, values[rabbitMQ], values[rabbitMQ4])) + " | " + ratio(values[warren], values[natsPlain]) + " | " + runs(values) + " |\n")
		}
	}
	b.WriteString(trouble(lines))
	return b.String()
}

// trouble is row 18, and how many runs failed.
func trouble(lines []line) string {
	var b strings.Builder
	b.WriteString("| 18 | all of these | lost · repeated without the flag · failed runs | 0 · 0 · 0 | ")
	total := map[string][]float64{}
	for _, s := range systems {
		var lost, repeated float64
		failed, n := 0, 0
		for _, l := range lines {
			if l.text("system") != s {
				continue
			}
			n++
			total[s] = append(total[s], 0)
			lost += l.figure("lost")
			repeated += l.figure("duplicates")
			if l["time"] == nil {
				failed++
			}
		}
		if n == 0 {
			b.WriteString("– | ")
			continue
		}
		fmt.Fprintf(&b, "%s · %s · %d | ", number(lost), number(repeated), failed)
	}
	b.WriteString("| | " + runs(total) + " |\n")
	return b.String()
}

// runs tells how many there are of each system, once if they are equally many.
func runs(values map[string][]float64) string {
	var counts []string
	for _, s := range systems {
		if n := strconv.Itoa(len(values[s])); n != "0" && !slices.Contains(counts, n) {
			counts = append(counts, n)
		}
	}
	return strings.Join(counts, ", ")
}

func cell(values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	if len(values) == 1 {
		return number(values[0])
	}
	return fmt.Sprintf("%s (%s–%s)", number(median(values)), number(slices.Min(values)), number(slices.Max(values)))
}

func ratio(ours, theirs []float64) string {
	if len(ours) == 0 || len(theirs) == 0 || median(theirs) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", median(ours)/median(theirs))
}

// better returns the runs of the system that is better by their median: less is, where the target says so.
func better(f figure, a, b []float64) []float64 {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	case median(a) < median(b) == strings.HasPrefix(f.target, "≤"):
		return a
	}
	return b
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// number has commas between thousands, and three digits that count where it is small.
func number(v float64) string {
	if math.Abs(v) < 100 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	text := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if v < 0 {
		return "-" + text
	}
	return text
}

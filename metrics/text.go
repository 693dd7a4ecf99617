package metrics

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is what Prometheus is told of a metric.
type kind string

const (
	gaugeKind     kind = "gauge"
	counterKind   kind = "counter"
	histogramKind kind = "histogram"
)

// form is how a metric is written in one kind of answer: the text around the values of its labels, which come in the order of their names.
type form struct {
	name  string
	parts []string // one more than labels
	order []int    // of labels as they are given
}

func newForm(name string, labels []string) *form {
	f := &form{name: name}
	if len(labels) == 0 {
		f.parts = []string{name + " "}
		return f
	}
	for i := range labels {
		f.order = append(f.order, i)
	}
	slices.SortFunc(f.order, func(a, b int) int { return cmp.Compare(labels[a], labels[b]) })
	before := name + "{"
	for _, i := range f.order {
		f.parts = append(f.parts, before+labels[i]+`="`)
		before = `",`
	}
	f.parts = append(f.parts, `"} `)
	return f
}

// append adds a sample.
func (f *form) append(dst []byte, v float64, labels []string) []byte {
	for i, at := range f.order {
		dst = append(dst, f.parts[i]...)
		dst = appendLabel(dst, labels[at])
	}
	dst = append(dst, f.parts[len(f.parts)-1]...)
	dst = appendNumber(dst, v)
	return append(dst, '\n')
}

func appendNumber(dst []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(dst, "+Inf"...)
	case math.IsInf(v, -1):
		return append(dst, "-Inf"...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, 64)
}

// appendLabel escapes a label's value. A byte that is not UTF-8, for which Prometheus would refuse all of the answer, is written as \xNN.
func appendLabel(dst []byte, v string) []byte {
	if !strings.ContainsAny(v, "\\\"\n") && utf8.ValidString(v) {
		return append(dst, v...)
	}
	for len(v) > 0 {
		r, n := utf8.DecodeRuneInString(v)
		switch {
		case r == '\\':
			dst = append(dst, `\\`...)
		case r == '"':
			dst = append(dst, `\"`...)
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == utf8.RuneError && n <= 1:
			dst = append(dst, `\\x`...)
			dst = hex.AppendEncode(dst, []byte(v[:1]))
		default:
			dst = append(dst, v[:n]...)
		}
		v = v[max(1, n):]
	}
	return dst
}

// head is the lines before a metric's samples.
func (f *form) head(d *def) string {
	help := strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(d.help)
	return "# HELP " + f.name + " " + help + "\n# TYPE " + f.name + " " + string(d.kind) + "\n"
}

// text is everything, metric by metric.
func (s *scrape) text() []byte {
	size := 0
	for i := range s.samples {
		if n := len(s.samples[i]); n > 0 {
			size += n + len(s.form(defs[i]).head(defs[i]))
		}
	}
	out := make([]byte, 0, size)
	for i, samples := range s.samples {
		if len(samples) > 0 {
			out = append(append(out, s.form(defs[i]).head(defs[i])...), samples...)
		}
	}
	return out
}

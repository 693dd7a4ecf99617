package report

import (
	"fmt"
	"hash/fnv"
	"html"
	"io"
	"math"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

// Sizes of the plot, in its own units.
const (
	plotLeft, plotRight = 60, 1190
	plotTop, plotBottom = 44, 330
	ratesBottom         = 430
	// pointsMax is how many operations are drawn of those that went well; of the others, all up
	// to the same number.
	pointsMax = 4000
	// latencyMin and latencyMax are the ends of the axis, in seconds.
	latencyMin, latencyMax = 0.0005, 60.0
)

// colors of the ends of operations.
var colors = map[history.Type]string{history.OK: "#3a7bd5", history.Info: "#e08b00", history.Fail: "#c62828"}

// point is an operation with a beginning and an end.
type point struct {
	op   history.Op // the end
	took time.Duration
}

// timeline draws, over the time of the run, how long each operation took, with the faults as
// bands behind, and below how many messages were confirmed and delivered each second.
func timeline(w io.Writer, r Report, ops []history.Op) {
	var end time.Duration
	if len(ops) > 0 {
		end = ops[len(ops)-1].Time
	}
	span := max(end.Seconds(), 1)
	x := func(t time.Duration) float64 { return plotLeft + (plotRight-plotLeft)*t.Seconds()/span }
	fmt.Fprintf(w, `<svg viewBox="0 0 1200 %d" width="100%%" role="img" aria-label="timeline">`, ratesBottom+30)
	bands(w, r.Faults, end, x)
	axes(w, span)
	for _, p := range sample(points(ops)) {
		y := latencyY(p.took)
		fmt.Fprintf(w, `<circle cx="%.1f" cy="%.1f" r="1.6" fill="%s"><title>%s</title></circle>`,
			x(p.op.Time-p.took), y, colors[p.op.Type],
			html.EscapeString(fmt.Sprintf("%s %s %s: %s after %.1f ms, process %d at %s %s", p.op.F, p.op.Queue, p.op.Value, p.op.Type,
				float64(p.took.Microseconds())/1000, p.op.Process, p.op.Node, p.op.Error)))
	}
	rates(w, ops, end, x)
	fmt.Fprint(w, `</svg>`)
	fmt.Fprint(w, `<p><small>Above: operations by when they began and how long they took; blue: ok, orange: unknown, red: refused; bands: faults.
Below, each second: blue: confirmed, green: delivered.</small></p>`)
}

// bands draws the faults.
func bands(w io.Writer, faults []Fault, end time.Duration, x func(time.Duration) float64) {
	for i, f := range faults {
		to := f.End
		if to == 0 {
			to = end
		}
		fmt.Fprintf(w, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="hsl(%d 70%% 50%%)" fill-opacity="0.16"><title>%s</title></rect>`,
			x(f.Begin), plotTop, math.Max(x(to)-x(f.Begin), 1), ratesBottom-plotTop, hue(f.Name), html.EscapeString(f.Name+": "+f.What))
		fmt.Fprintf(w, `<text x="%.1f" y="%d">%s</text>`, x(f.Begin), plotTop-30+13*(i%3), html.EscapeString(f.Name))
	}
}

// hue gives each kind of fault a color of its own.
func hue(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32() % 360
}

// axes draws the axes of both plots.
func axes(w io.Writer, span float64) {
	line := func(x1, y1, x2, y2 float64) {
		fmt.Fprintf(w, `<line class="axis" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, x1, y1, x2, y2)
	}
	for _, s := range []float64{0.001, 0.01, 0.1, 1, 10} {
		y := latencyY(time.Duration(s * float64(time.Second)))
		line(plotLeft, y, plotRight, y)
		fmt.Fprintf(w, `<text x="4" y="%.1f">%g ms</text>`, y+4, s*1000)
	}
	line(plotLeft, plotTop, plotLeft, ratesBottom)
	line(plotLeft, ratesBottom, plotRight, ratesBottom)
	step := math.Max(1, math.Ceil(span/60)) * 5
	for s := 0.0; s <= span; s += step {
		fmt.Fprintf(w, `<text x="%.1f" y="%d">%g s</text>`, plotLeft+(plotRight-plotLeft)*s/span, ratesBottom+16, s)
	}
}

// latencyY places a latency on the logarithmic axis.
func latencyY(d time.Duration) float64 {
	s := math.Min(math.Max(d.Seconds(), latencyMin), latencyMax)
	part := math.Log(s/latencyMin) / math.Log(latencyMax/latencyMin)
	return plotBottom - part*(plotBottom-plotTop)
}

// points pairs the ends of operations with their beginnings.
func points(ops []history.Op) []point {
	begun := map[int]time.Duration{}
	var list []point
	for _, o := range ops {
		switch {
		case o.F == history.Fault:
		case o.Type == history.Invoke:
			begun[o.Index] = o.Time
		case o.Of != 0:
			if t, known := begun[o.Of]; known {
				list = append(list, point{o, o.Time - t})
			}
		}
	}
	return list
}

// sample leaves every n-th of the operations that went well.
func sample(list []point) []point {
	kept := map[bool][]point{}
	n := map[bool]int{}
	for _, p := range list {
		n[p.op.Type == history.OK]++
	}
	seen := map[bool]int{}
	for _, p := range list {
		ok := p.op.Type == history.OK
		if every := n[ok]/pointsMax + 1; seen[ok]%every == 0 {
			kept[ok] = append(kept[ok], p)
		}
		seen[ok]++
	}
	return append(kept[true], kept[false]...)
}

// rates draws how many messages were confirmed and delivered in each second.
func rates(w io.Writer, ops []history.Op, end time.Duration, x func(time.Duration) float64) {
	seconds := int(end.Seconds()) + 1
	confirmed, delivered := make([]int, seconds), make([]int, seconds)
	highest := 1
	for _, o := range ops {
		s := int(o.Time.Seconds())
		switch {
		case o.F == history.Drain:
		case o.F == history.Publish && o.Type == history.OK:
			confirmed[s]++
		case o.Delivery():
			delivered[s]++
		}
		highest = max(highest, confirmed[s], delivered[s])
	}
	for _, line := range []struct {
		n     []int
		color string
	}{{confirmed, "#3a7bd5"}, {delivered, "#2a8a3a"}} {
		fmt.Fprintf(w, `<polyline fill="none" stroke="%s" points="`, line.color)
		for s, n := range line.n {
			fmt.Fprintf(w, "%.1f,%.1f ", x(time.Duration(s)*time.Second), ratesBottom-float64(n)/float64(highest)*(ratesBottom-plotBottom-15))
		}
		fmt.Fprint(w, `"/>`)
	}
	fmt.Fprintf(w, `<text x="4" y="%d">%d /s</text>`, plotBottom+20, highest)
}

package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// pair is what is compared: RabbitMQ, then Warren.
type pair [2]struct {
	name string
	urls []string // of the nodes
}

// patience is how long the brokers have to agree after a method.
const patience = 1500 * time.Millisecond

// difference is what a method brought that is not the same in both.
type difference struct {
	step    int
	op      op
	answers [2]string
	events  [2][]string
	states  [2]string
}

var digits = regexp.MustCompile(`[0-9]+`)

// kind is what differences of the same cause have in common, roughly.
func (d *difference) kind() string {
	side := func(i int) string {
		var only []string
		for _, e := range d.events[i] {
			if !slices.Contains(d.events[1-i], e) {
				w := strings.Fields(e)
				only = append(only, strings.Join(w[1:min(len(w), 3)], " "))
			}
		}
		s := strings.Join(only, ",")
		if d.answers[0] != d.answers[1] {
			s = digits.ReplaceAllString(d.answers[i], "#") + s
		}
		return s
	}
	counts := ""
	if d.states[0] != d.states[1] {
		counts = " counts"
	}
	return d.op.kind + ": " + side(0) + " | " + side(1) + counts
}

func (d *difference) text(p pair) string {
	var b strings.Builder
	for i := range p {
		fmt.Fprintf(&b, "  %s answers the last %s; %s\n", p[i].name, d.answers[i], d.states[i])
		for _, e := range d.events[i] {
			fmt.Fprintf(&b, "    %s\n", e)
		}
	}
	return b.String()
}

// documented tells whether docs/compatibility.md names the difference.
func (d *difference) documented() bool {
	rabbit, warren := d.answers[0], d.answers[1]
	switch d.op.kind {
	case "queue.unbind": // another connection's exclusive queue, where there is no such binding
		return rabbit == "ok" && strings.HasPrefix(warren, "405")
	case "queue.delete": // what consumers hold is in the queue for if-empty
		return d.op.is("if-empty") && strings.HasPrefix(rabbit, "ok") && strings.HasPrefix(warren, "406")
	}
	return false
}

// run sends a sequence to both and returns the first difference that is not documented, nil if there is none.
func (p pair) run(ops []op) (d *difference, err error) {
	prefix := fmt.Sprintf("r%d-%d-", os.Getpid(), runs.Add(1))
	var ws [2]*world
	for i := range ws {
		w, err := open(p[i].urls, prefix)
		if w != nil {
			defer w.close()
		}
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", p[i].name, err)
		}
		ws[i] = w
	}
	for i, o := range ops {
		if d := step(ws, o); d != nil {
			if d.documented() {
				return nil, nil // what follows is different, too
			}
			d.step = i
			return d, nil
		}
		for k, w := range ws {
			if err := w.mend(); err != nil {
				return nil, fmt.Errorf("connect to %s again: %w", p[k].name, err)
			}
		}
	}
	return nil, nil
}

// step carries out one method in both and waits until they agree, twice in a row.
func step(ws [2]*world, o op) *difference {
	d := &difference{op: o}
	both := func(f func(i int, w *world)) {
		var wg sync.WaitGroup
		for i, w := range ws {
			wg.Go(func() { f(i, w) })
		}
		wg.Wait()
	}
	both(func(i int, w *world) { d.answers[i] = w.do(o) })
	same := 0
	for end := time.Now().Add(patience); ; time.Sleep(3 * time.Millisecond) {
		both(func(i int, w *world) {
			d.states[i], d.events[i] = w.state(), w.seen()
			if o.kind == hangUp { // which of the channels tell is the library's
				d.events[i] = slices.DeleteFunc(d.events[i], func(e string) bool { return strings.Contains(e, "closed ") })
			}
		})
		switch {
		case d.answers[0] != d.answers[1]:
			return d
		case d.states[0] != d.states[1] || !slices.Equal(d.events[0], d.events[1]):
			same = 0
		case same > 0:
			for _, w := range ws {
				w.forget()
			}
			return nil
		default:
			same++
		}
		if same == 0 && time.Now().After(end) {
			return d
		}
	}
}

// shorten leaves out methods that the difference does not need.
func (p pair) shorten(ops []op, d *difference) ([]op, *difference, error) {
	for size := max(1, len(ops)/3); size >= 1; size /= 2 {
		for i := 0; i+size <= len(ops); {
			fewer := slices.Concat(ops[:i], ops[i+size:])
			e, err := p.run(fewer)
			switch {
			case err != nil:
				return nil, nil, err
			case e != nil && e.kind() == d.kind():
				ops, d = fewer[:e.step+1], e
			default:
				i += size
			}
		}
	}
	return ops, d, nil
}

package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// pair is what is compared: RabbitMQ, then Warren.
type pair [2]broker

type broker struct {
	name   string
	urls   []string // of the nodes
	http   string   // of one
	client *http.Client
}

// patience is how long the brokers have to agree after a method.
const patience = 1500 * time.Millisecond

// patiencePolicy is the same after a change of policies.
const patiencePolicy = 8 * time.Second

// How often in a row they have to: what a log of RabbitMQ's takes is seen later than the answers of its channels.
const (
	calm           = 2
	calmReplicated = 6
)

// difference is what a method brought that is not the same in both.
type difference struct {
	step    int
	op      op
	answers [2]string
	events  [2][]string
	states  [2]string
	// What there may be: dead letters that are kept, and messages that expire soon behind others.
	kept, short bool
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

// run sends a sequence to both and returns the first difference that is not documented, nil if there is none.
func (p pair) run(m *mix, ops []op) (d *difference, err error) {
	prefix := fmt.Sprintf("r%d-%d-", os.Getpid(), runs.Add(1))
	var ws [2]*world
	for i := range ws {
		w, err := open(&p[i], m, prefix)
		if w != nil {
			defer w.close()
		}
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", p[i].name, err)
		}
		ws[i] = w
	}
	kept, short := false, false
	for i, o := range ops {
		kept, short = kept || o.keeps(), short || o.expires()
		if d := step(ws, o); d != nil {
			d.kept, d.short = kept, short
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

// step carries out one method in both and waits until they agree, some times in a row.
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
	same, often := 0, calm
	if ws[0].mix.replicated() {
		often = calmReplicated
	}
	end := time.Now().Add(patience)
	if o.isPolicy() {
		end = time.Now().Add(patiencePolicy)
	}
	for ; ; time.Sleep(3 * time.Millisecond) {
		both(func(i int, w *world) {
			d.states[i], d.events[i] = w.state(), w.seen()
			if o.isPolicy() {
				d.states[i] += w.policies()
			}
			if len(o.before) > 0 && slices.ContainsFunc(d.events[i], func(e string) bool { return strings.Contains(e, ": closed ") }) { // behind which nothing need be told
				d.events[i] = slices.DeleteFunc(d.events[i], func(e string) bool { return strings.Contains(e, ": confirm ") || strings.Contains(e, ": cancelled ") })
			}
			if o.kind == hangUp { // which of the channels tell is the library's
				d.events[i] = slices.DeleteFunc(d.events[i], func(e string) bool { return strings.Contains(e, "closed ") })
			}
		})
		switch {
		case d.answers[0] != d.answers[1]:
			return d
		case d.states[0] != d.states[1] || !slices.Equal(d.events[0], d.events[1]):
			same = 0
		case same+1 < often:
			same++
		case o.isPolicy():
			time.Sleep(applied)
			fallthrough
		default:
			for _, w := range ws {
				w.forget()
			}
			return nil
		}
		if same == 0 && time.Now().After(end) {
			return d
		}
	}
}

// shortening is how long to look for a shorter sequence.
const shortening = 20 * time.Second

// shorten leaves out methods that the difference does not need.
func (p pair) shorten(m *mix, ops []op, d *difference) ([]op, *difference, error) {
	end := time.Now().Add(shortening)
	for size := max(1, len(ops)/3); size >= 1; size /= 2 {
		for i := 0; i+size <= len(ops) && time.Now().Before(end); {
			fewer := slices.Concat(ops[:i], ops[i+size:])
			e, err := p.run(m, fewer)
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

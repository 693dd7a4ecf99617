package shovel

import (
	"sync"
	"time"
)

// Crew runs the shovels of one node.
type Crew struct {
	cfg Config

	mu      sync.Mutex
	wanted  map[place]Job
	workers map[place]*Worker
	ending  map[place]bool // of workers
	past    uint64         // what workers that have ended have forwarded
	closed  bool
	stops   sync.WaitGroup
}

type place struct{ vhost, name string }

// NewCrew makes a crew without jobs. Close ends it.
func NewCrew(cfg Config) *Crew {
	return &Crew{cfg: cfg, wanted: map[place]Job{}, workers: map[place]*Worker{}, ending: map[place]bool{}}
}

// Set says which shovels this node is to run. What is not among them ends, in order, and what is new begins; it does not wait for either.
func (c *Crew) Set(jobs []Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = make(map[place]Job, len(jobs))
	for _, j := range jobs {
		c.wanted[place{j.VHost, j.Name}] = j
	}
	c.step()
}

// step is called with mu held.
func (c *Crew) step() {
	for at, w := range c.workers {
		if j, ok := c.wanted[at]; (!ok || j.Since != w.def.Since) && !c.ending[at] {
			c.ending[at] = true
			c.stops.Go(func() { c.end(at, w) })
		}
	}
	if c.closed {
		return
	}
	for at, j := range c.wanted {
		if c.workers[at] == nil && j.Broken == nil {
			c.workers[at] = Start(c.cfg, j)
		}
	}
}

func (c *Crew) end(at place, w *Worker) {
	w.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past += w.Status().Forwarded
	delete(c.workers, at)
	delete(c.ending, at)
	c.step()
}

// Close ends all shovels, and waits for them.
func (c *Crew) Close() {
	c.mu.Lock()
	c.closed, c.wanted = true, nil
	c.step()
	c.mu.Unlock()
	c.stops.Wait()
}

// Statuses tells what the shovels do, in no order.
func (c *Crew) Statuses() []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Status, 0, len(c.workers))
	for _, w := range c.workers {
		list = append(list, w.Status())
	}
	for _, j := range c.wanted {
		if j.Broken != nil {
			list = append(list, Status{VHost: j.VHost, Name: j.Name, State: Terminated, Since: time.Time{}, Reason: j.Broken.Error(), Remaining: -1})
		}
	}
	return list
}

// Figures are counts of all shovels of a node.
type Figures struct {
	States map[State]int
	// Forwarded counts the messages that have arrived since the crew was made; Waiting are those that were refused, or have no queue, and will be tried again.
	Forwarded uint64
	Waiting   int
}

// Figures counts.
func (c *Crew) Figures() Figures {
	list := c.Statuses()
	f := Figures{States: map[State]int{Starting: 0, Running: 0, Terminated: 0}}
	for i := range list {
		f.States[list[i].State]++
		f.Forwarded += list[i].Forwarded
		f.Waiting += list[i].Waiting
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.Forwarded += c.past
	return f
}

// Restart has a shovel connect anew; false: this node does not run it.
func (c *Crew) Restart(vhost, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.workers[place{vhost, name}]
	if w == nil {
		return false
	}
	w.Restart()
	return true
}

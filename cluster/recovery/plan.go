package recovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/warrenmq/warren/catalog"
)

// Position is how far a replica's log reaches.
type Position struct {
	Known     bool // the node runs the replica
	Damaged   bool // it does not, because the replica's log is damaged; nodes with an older program do not say it
	LastTerm  uint64
	LastIndex uint64
	Voter     bool
	// Leader is who it follows or is, "" if it knows of none.
	Leader catalog.NodeID
}

// Cluster is what recovery needs of the node that it runs on.
type Cluster interface {
	View() *catalog.View
	Propose(ctx context.Context, c catalog.Command) (catalog.Result, error)
	// Positions asks a node about its replicas of queues; the answers are in the order of ids.
	Positions(ctx context.Context, node catalog.NodeID, ids []uint64) ([]Position, error)
}

// Request is what an operator asks for.
type Request struct {
	// Lost are the names of the nodes that are gone for good.
	Lost []string `json:"lost"`
	// VHost and Queue limit it, to a virtual host or a queue; "" is all.
	VHost string `json:"vhost,omitempty"`
	Queue string `json:"queue,omitempty"`
	// Yes: it is done. Otherwise it is said what would be done.
	Yes bool `json:"yes,omitempty"`
}

// State is what becomes of a queue.
type State string

// The states.
const (
	Possible  State = "possible"  // it can be recovered
	Refused   State = "refused"   // Why tells the reason
	Pending   State = "pending"   // the catalog has decided; its new leader has not begun in time
	Recovered State = "recovered" // it goes on
	Deleted   State = "deleted"   // it was deleted meanwhile, or had been and could end at last: there is nothing to recover
)

// Replica is what a survivor has.
type Replica struct {
	Node  string `json:"node"`
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
	Voter bool   `json:"voter"`
}

// Queue is what is, or would be, done about one queue.
type Queue struct {
	ID    uint64 `json:"id"`
	VHost string `json:"vhost"`
	// Name is that of the delayed exchange if the queue belongs to one.
	Name      string    `json:"name"`
	Delays    bool      `json:"delays,omitempty"`
	Lost      []string  `json:"lost"`
	Survivors []Replica `json:"survivors"`
	Keep      string    `json:"keep,omitempty"`
	State     State     `json:"state"`
	Why       string    `json:"why,omitempty"`
	// NewID, Messages and Again are known once it is recovered: see catalog.Kept.
	NewID    uint64 `json:"new_id,omitempty"`
	Messages uint64 `json:"messages"`
	Again    uint64 `json:"sent_again"`

	ranked   []catalog.NodeID // survivors, the one to keep first
	lost     []catalog.NodeID
	settings uint64
}

// Report is what a request led to.
type Report struct {
	Lost   []string `json:"lost"` // the storages that the names stand for
	Queues []Queue  `json:"queues"`
}

// Error is a request that cannot be met as it is.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

func refuse(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// lostOf finds the storages that are gone. One that was replaced under its name is gone in any case.
func lostOf(v *catalog.View, names []string) ([]catalog.NodeID, error) {
	var lost []catalog.NodeID
	for n := range v.Nodes() {
		if n.Superseded {
			lost = append(lost, n.ID)
		}
	}
	for _, name := range names {
		found := false
		for n := range v.Nodes() {
			switch {
			case n.Name != name && string(n.ID) != name:
				continue
			case !n.Superseded && n.Down == 0 && string(n.ID) != name && hasFormer(v, n.Name):
				// The storage was replaced; the node that has its name now is another one.
			case !n.Superseded && n.Down == 0:
				return nil, refuse("node '%s' is not known to be down: it answers, or has not been silent for long enough", name)
			case !slices.Contains(lost, n.ID):
				lost = append(lost, n.ID)
			}
			found = true
		}
		if !found && !lostWithALife(v, name) && !v.Forgotten(catalog.NodeID(name)) {
			return nil, refuse("there is no node '%s'", name)
		}
	}
	return lost, nil
}

func hasFormer(v *catalog.View, name string) bool {
	for n := range v.Nodes() {
		if n.Name == name && n.Superseded {
			return true
		}
	}
	return lostWithALife(v, name)
}

// lostWithALife tells whether a node of that name did not go on when the cluster was recovered. It may be forgotten by now.
func lostWithALife(v *catalog.View, name string) bool {
	for _, l := range v.Lives() {
		if slices.ContainsFunc(l.Lost, func(n catalog.NodeID) bool { return namedAs(n, []string{name}) != "" }) {
			return true
		}
	}
	return false
}

// Plan tells what can be done.
func Plan(ctx context.Context, c Cluster, r *Request) (*Report, error) {
	v := c.View()
	lost, err := lostOf(v, r.Lost)
	if err != nil {
		return nil, err
	}
	report := &Report{Lost: texts(lost)}
	var work []*affected
	for q := range v.AllQueues() {
		if q.Kind != catalog.Replicated || r.VHost != "" && q.Vhost != r.VHost || r.Queue != "" && q.Name != r.Queue {
			continue
		}
		if a := affectedBy(v, q, lost); a != nil {
			work = append(work, a)
		}
	}
	ask(ctx, c, work)
	for _, a := range work {
		if a.state == Possible || a.state == Refused {
			report.Queues = append(report.Queues, a.decide())
		}
	}
	slices.SortFunc(report.Queues, func(a, b Queue) int {
		return cmp.Or(strings.Compare(a.VHost, b.VHost), strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return report, nil
}

// affected is a queue that may have lost its majority.
type affected struct {
	q         *catalog.Queue
	former    uint64 // whose replicas there are
	lost      []catalog.NodeID
	survivors []catalog.NodeID
	positions []Position       // parallel to survivors
	silent    []catalog.NodeID // did not answer
	damaged   []catalog.NodeID // answered that their replica is damaged
	idle      []catalog.NodeID // answered, and do not run their replica
	state     State
	why       string
}

func affectedBy(v *catalog.View, q *catalog.Queue, lost []catalog.NodeID) *affected {
	a := &affected{q: q, former: q.ID, state: Possible}
	from := q.Members
	if q.Survivors != nil {
		if a.former, from = q.Former[len(q.Former)-1], q.Survivors; !slices.Contains(lost, q.Members[0]) {
			return nil // under way
		}
	}
	for _, n := range from {
		if slices.Contains(lost, n) || v.Node(n) == nil {
			a.lost = append(a.lost, n)
		} else {
			a.survivors = append(a.survivors, n)
		}
	}
	if q.Survivors != nil && !slices.Contains(a.lost, q.Members[0]) {
		a.lost = append(a.lost, q.Members[0])
	}
	switch {
	case len(a.lost) == 0, q.Survivors == nil && q.Wanted == nil && 2*len(a.lost) < len(q.Members):
		return nil
	case len(a.survivors) == 0:
		a.state, a.why = Refused, "no replica is left: delete the queue and declare it again"
		if q.State == catalog.Closing {
			a.why = "no replica is left, and it is deleted: it goes when its nodes have come back with empty disks, or are forgotten, or with delete_queue --force"
			if q.DelayOf != "" {
				a.why += " --delayed-exchange"
			}
		}
	}
	return a
}

// ask asks every survivor once, about all queues. Of a queue that is being recovered nobody runs the former life any more: whoever
// answers at all has it as it was.
func ask(ctx context.Context, c Cluster, work []*affected) {
	by := map[catalog.NodeID][]*affected{}
	for _, a := range work {
		a.positions = make([]Position, len(a.survivors))
		for _, n := range a.survivors {
			by[n] = append(by[n], a)
		}
	}
	for n, list := range by {
		ids := make([]uint64, len(list))
		for i, a := range list {
			ids[i] = a.former
		}
		all, err := c.Positions(ctx, n, ids)
		for i, a := range list {
			switch {
			case err != nil || len(all) != len(ids):
				a.silent = append(a.silent, n)
			case all[i].Known || a.q.Survivors != nil:
				a.positions[slices.Index(a.survivors, n)] = all[i]
			case all[i].Damaged:
				a.damaged = append(a.damaged, n)
			default:
				a.idle = append(a.idle, n)
			}
		}
	}
}

// decide chooses the replica with the newest log.
func (a *affected) decide() Queue {
	q := Queue{
		ID: a.q.ID, VHost: a.q.Vhost, Name: a.q.Name, Delays: a.q.DelayOf != "", Lost: texts(a.lost),
		State: a.state, Why: a.why, lost: a.lost, settings: a.q.Settings,
	}
	rank := make([]int, len(a.survivors))
	for i := range rank {
		rank[i] = i
	}
	if a.q.Survivors == nil { // else they were ranked when they ran
		slices.SortStableFunc(rank, func(i, k int) int { return newer(a.positions[k], a.positions[i]) })
	}
	for _, i := range rank {
		n, p := a.survivors[i], a.positions[i]
		if slices.Contains(slices.Concat(a.silent, a.damaged, a.idle), n) {
			continue
		}
		q.ranked = append(q.ranked, n)
		q.Survivors = append(q.Survivors, Replica{string(n), p.LastTerm, p.LastIndex, p.Voter})
		// With most members down nobody leads; who has led does not know that yet. While members change others may vote.
		if a.q.Wanted != nil && p.Leader != "" && !slices.Contains(a.lost, p.Leader) {
			q.State, q.Why = Refused, fmt.Sprintf("node '%s' says that '%s' leads it", n, p.Leader)
		}
	}
	if q.State == Refused {
		return q
	}
	if why := a.missing(); why != "" {
		q.State, q.Why = Refused, why
		return q
	}
	q.Keep = string(q.ranked[0])
	return q
}

// missing tells which survivors have not said what they have, and what helps; "" if all have. Each of them may have the newest replica.
func (a *affected) missing() string {
	var why []string
	if len(a.silent) > 0 {
		why = append(why, fmt.Sprintf("no answer about it from %s, which may have the newest replica: bring the node back, or stop it and name it as lost", strings.Join(texts(a.silent), ", ")))
	}
	if len(a.idle) > 0 {
		why = append(why, fmt.Sprintf("%s runs without its replica, which may be the newest: wait until the node is ready; if it is, the node's log says why, and it can be stopped and named as lost",
			strings.Join(texts(a.idle), ", ")))
	}
	if len(a.damaged) > 0 {
		help := "restart the node if its disk can be read again; otherwise stop it and name it as lost"
		if len(a.damaged) == len(a.survivors) {
			help = "if its disk can be read again restart the node; otherwise nothing of the queue is left to go on from, and it can only be deleted (delete_queue --force)"
		}
		why = append(why, fmt.Sprintf("the replica on %s, which may be the newest, is damaged: %s", strings.Join(texts(a.damaged), ", "), help))
	}
	return strings.Join(why, "; ")
}

func newer(a, b Position) int {
	return cmp.Or(cmp.Compare(a.LastTerm, b.LastTerm), cmp.Compare(a.LastIndex, b.LastIndex), cmp.Compare(truth(a.Voter), truth(b.Voter)))
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func texts(ids []catalog.NodeID) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = string(id)
	}
	return list
}

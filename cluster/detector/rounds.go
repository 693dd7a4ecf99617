package detector

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/transport"
)

// round is the outcome of asking the others about one suspect.
type round struct {
	node     transport.NodeID
	notHeard []transport.NodeID // by whom, this node included
	heard    int
	mute     []transport.NodeID // who was asked and did not answer in time
}

// othersLocked returns the nodes whose opinion about n is worth asking for.
func (d *Detector) othersLocked(n transport.NodeID) []transport.NodeID {
	var others []transport.NodeID
	for o, w := range d.peers {
		if o != n && w.state != Dead {
			others = append(others, o)
		}
	}
	return others
}

// ask runs one round of questions about a suspect, which takes as long as patience, and
// reports to run.
func (d *Detector) ask(suspect transport.NodeID, others []transport.NodeID, patience time.Duration) {
	ctx, cancel := context.WithTimeout(d.ctx, patience)
	defer cancel()
	answers := make(chan answer, len(others))
	var wg sync.WaitGroup
	for _, o := range others {
		wg.Go(func() { answers <- d.opinionOf(ctx, o, suspect) })
	}
	r := round{node: suspect, notHeard: []transport.NodeID{d.cfg.Local}}
	need := d.majority()
	for range others {
		// A majority decides without waiting for a node that may be dead as well.
		if len(r.notHeard) >= need {
			break
		}
		switch a := <-answers; {
		case a.mute:
			r.mute = append(r.mute, a.from)
		case a.says == opinionHeard:
			r.heard++
		case a.says == opinionNotHeard:
			r.notHeard = append(r.notHeard, a.from)
		}
	}
	select {
	case d.rounds <- r:
	case <-d.ctx.Done():
	}
	cancel()
	wg.Wait()
}

// answer is what a node says about a suspect; mute: nothing that can be understood.
type answer struct {
	from transport.NodeID
	says opinion
	mute bool
}

// opinionOf asks one node about a suspect.
func (d *Detector) opinionOf(ctx context.Context, n, suspect transport.NodeID) answer {
	resp, err := d.cfg.Net.Call(ctx, n, MethodOpinion, encodeQuestion(suspect))
	if err != nil {
		return answer{from: n, mute: true}
	}
	says, err := decodeOpinion(resp)
	if err != nil {
		d.cfg.Logger.Warn("opinion ignored", "node", n, "err", err)
	}
	return answer{from: n, says: says, mute: err != nil}
}

// majority is the number of nodes, this one included, that must not hear a suspect: most of those that are not dead.
func (d *Detector) majority() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	living := 1
	for _, w := range d.peers {
		if w.state != Dead {
			living++
		}
	}
	return living/2 + 1
}

// votersMin is how many voters the catalog must have for their word to condemn a node without a majority of the nodes.
const votersMin = 3

// votersAgree tells whether most of those who vote on the catalog do not hear a suspect, and nobody does: all who were asked have answered, but
// for those that are suspects too. When half of the nodes die at once those that are left are no majority, but the catalog may go on with them.
func (d *Detector) votersAgree(r round) bool {
	if d.cfg.Voters == nil || r.heard > 0 {
		return false
	}
	voters := d.cfg.Voters()
	most := 0
	for _, v := range voters {
		if slices.Contains(r.notHeard, v) {
			most++
		}
	}
	if len(voters) < votersMin || most <= len(voters)/2 {
		return false
	}
	return !slices.ContainsFunc(r.mute, func(n transport.NodeID) bool { return d.State(n) != Suspect && d.State(n) != Dead })
}

// judge turns a finished round into a verdict. The suspect may have been heard from while the
// others were asked: it is looked at once more.
func (d *Detector) judge(r round, lim limits) []Event {
	need := d.majority()
	slices.Sort(r.notHeard)
	agreed := len(r.notHeard) >= need || d.votersAgree(r)
	status := d.cfg.Net.Peer(r.node)
	d.mu.Lock()
	defer d.mu.Unlock()
	w, ok := d.peers[r.node]
	if !ok {
		return nil
	}
	now := time.Now()
	w.asking = false
	w.askNext = now.Add(d.cfg.Tick)
	if !agreed {
		d.cfg.Logger.Debug("suspect is not condemned", "node", r.node, "not_heard", len(r.notHeard), "heard", r.heard, "need", need)
		news := w.state == Suspect && len(r.notHeard) > 1 && !slices.Equal(w.unheard, r.notHeard)
		w.unheard = r.notHeard
		if news {
			return []Event{{Node: r.node, State: Suspect, At: now}}
		}
		return nil
	}
	fresh := w.peer
	if fresh.observe(status, 0, lim.silence, lim.hearing) != stepAsk || !w.condemn() {
		return nil // the next look takes note of it
	}
	w.verdict = Event{Node: r.node, State: Dead, At: now, Refused: fresh.refused}
	return []Event{w.verdict}
}

// answer tells another node whether this one hears a third.
func (d *Detector) answer(_ context.Context, from transport.NodeID, request []byte) ([]byte, error) {
	node, err := decodeQuestion(request)
	if err != nil {
		return nil, fmt.Errorf("opinion asked by %s: %w", from, err)
	}
	if node == d.cfg.Local {
		return encodeOpinion(opinionHeard), nil
	}
	// The stream's state is read fresh: a killed process is known here at once,
	// the next tick may be far.
	up := d.cfg.Net.Peer(node).Up
	d.mu.Lock()
	defer d.mu.Unlock()
	w, ok := d.peers[node]
	switch {
	case !ok:
		return encodeOpinion(opinionNone), nil
	case up && w.heard:
		return encodeOpinion(opinionHeard), nil
	default:
		return encodeOpinion(opinionNotHeard), nil
	}
}

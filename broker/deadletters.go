package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/dlx/mover"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

const opDeadLetters = "dead-letters"

// Bounds of a count of dead letters: of what one answer looks at, of the whole count, and of its groups.
const (
	deadPart      = 20_000
	deadPartTime  = time.Second
	deadTime      = 10 * time.Second
	deadGroupsMax = 500
)

// AgeBounds are where the ages of dead letters are divided.
var AgeBounds = [...]time.Duration{time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

// DeadGroup counts the messages of a queue that died last in the same queue for the same reason.
type DeadGroup struct {
	Reason   string `json:"reason"`
	Queue    string `json:"queue"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"` // of bodies
	// Retried are those that somebody sent back before, and that died again.
	Retried uint64 `json:"retried"`
	// Oldest and Newest are the times of these deaths, in ms since 1970.
	Oldest int64 `json:"oldest"`
	Newest int64 `json:"newest"`
	// Ages counts the messages by how long ago they died: younger than the first of AgeBounds, than the second and so on, and the rest.
	Ages [len(AgeBounds) + 1]uint64 `json:"ages"`
}

// DeadLetters counts what is in a queue, ready or with consumers, by its newest death.
type DeadLetters struct {
	Groups []DeadGroup `json:"groups"` // most messages first
	// NeverDied were published to the queue; Others are in groups for which there was no room.
	NeverDied uint64 `json:"never_died"`
	Others    uint64 `json:"others"`
	// Looked is how many messages were looked at; Complete: these were all.
	Looked   uint64 `json:"looked"`
	Complete bool   `json:"complete"`
	// Next is where the look would go on.
	Next uint64 `json:"next,omitempty"`
}

// DeadLetters looks at the messages of a queue for a user, who needs to be allowed to read it. Nothing changes. The error is an *Error.
func (b *Broker) DeadLetters(ctx context.Context, u User, vhost, name string) (all DeadLetters, err error) {
	q, err := b.queueFor(ctx, u, vhost, name, auth.Read)
	if err != nil {
		return all, err
	}
	for until := time.Now().Add(deadTime); ; {
		var part DeadLetters
		if err := b.inquireNamed(ctx, q, opDeadLetters, deadQuestion{After: queue.MessageID(all.Next)}, &part); err != nil {
			return all, err
		}
		all.merge(&part)
		if all.Complete || time.Now().After(until) || ctx.Err() != nil {
			break
		}
	}
	slices.SortStableFunc(all.Groups, func(x, y DeadGroup) int {
		return cmp.Or(cmp.Compare(y.Messages, x.Messages), strings.Compare(x.Queue, y.Queue), strings.Compare(x.Reason, y.Reason))
	})
	return all, nil
}

// deadQuestion is the body of the inquiry: the message behind which the look begins.
type deadQuestion struct {
	After queue.MessageID `json:"after,omitempty"`
}

func answerDeadLetters(_ context.Context, b *Broker, h *hosted, body []byte) (any, error) {
	var q deadQuestion
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, Errorf(PreconditionFailed, "dead letters: %v", err)
	}
	if h.replica.Leader() == nil {
		return nil, errNotHere
	}
	var list []queue.Message
	h.replica.View(func(m *fsm.Machine) { list = mover.LiveBehind(m, q.After, deadPart) })
	d := DeadLetters{Complete: len(list) < deadPart}
	reader, now, until := h.reader(), b.cfg.Now(), time.Now().Add(deadPartTime)
	for i := range list {
		d.Next = uint64(list[i].ID)
		if m, err := reader.message(list[i].Ref); err == nil { // else it has left meanwhile
			d.add(&m, now)
		}
		if time.Now().After(until) && i+1 < len(list) {
			d.Complete = false
			break
		}
	}
	return d, nil
}

func (d *DeadLetters) add(m *fsm.Message, now int64) {
	d.Looked++
	if len(m.Deaths) == 0 {
		d.NeverDied++
		return
	}
	death := &m.Deaths[0]
	g := DeadGroup{Reason: death.Reason.String(), Queue: death.Queue, Messages: 1, Bytes: uint64(len(m.Body)), Oldest: death.LastMillis, Newest: death.LastMillis}
	g.Ages[ageOf(death, now)] = 1
	if dlx.Retried(m.Deaths) {
		g.Retried = 1
	}
	d.count(&g)
}

// ageOf is the part of DeadGroup.Ages that a death belongs to.
func ageOf(death *dlx.Death, now int64) int {
	age := time.Duration(now-death.LastMillis) * time.Millisecond
	for i, bound := range AgeBounds {
		if age < bound {
			return i
		}
	}
	return len(AgeBounds)
}

// count adds a group to the one of the same reason and queue.
func (d *DeadLetters) count(g *DeadGroup) {
	i := slices.IndexFunc(d.Groups, func(x DeadGroup) bool { return x.Queue == g.Queue && x.Reason == g.Reason })
	switch {
	case i < 0 && len(d.Groups) >= deadGroupsMax:
		d.Others += g.Messages
		return
	case i < 0:
		d.Groups = append(d.Groups, *g)
		// Its name may be a part of an entry, which would stay in memory as a whole.
		d.Groups[len(d.Groups)-1].Queue = strings.Clone(g.Queue)
		return
	}
	to := &d.Groups[i]
	to.Messages, to.Bytes, to.Retried = to.Messages+g.Messages, to.Bytes+g.Bytes, to.Retried+g.Retried
	to.Oldest, to.Newest = min(to.Oldest, g.Oldest), max(to.Newest, g.Newest)
	for i, n := range g.Ages {
		to.Ages[i] += n
	}
}

// merge adds the part behind.
func (d *DeadLetters) merge(part *DeadLetters) {
	for i := range part.Groups {
		d.count(&part.Groups[i])
	}
	d.NeverDied, d.Others, d.Looked = d.NeverDied+part.NeverDied, d.Others+part.Others, d.Looked+part.Looked
	d.Complete, d.Next = part.Complete, part.Next
}

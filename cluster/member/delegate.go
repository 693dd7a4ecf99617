package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/hashicorp/memberlist"
)

// delegate is memberlist's way to ask and to tell. It keeps members of other clusters out and
// enters what it hears in the book and the roster. memberlist calls it with locks held: nothing here
// waits.
type delegate struct {
	g       *Gossip
	cluster string
	meta    []byte
}

var errFull = errors.New("gossip has told of too many members")

func newDelegate(g *Gossip, info Info) (*delegate, error) {
	meta, err := encodeMeta(info)
	if err != nil {
		return nil, err
	}
	return &delegate{g: g, cluster: info.ClusterID, meta: meta}, nil
}

// check reads a member's info and refuses other clusters'.
func (d *delegate) check(n *memberlist.Node) (Info, error) {
	i, err := decodeMeta(n.Meta, n.Addr.String())
	if err != nil {
		return i, err
	}
	if i.ClusterID != d.cluster {
		return i, fmt.Errorf("member %s belongs to cluster %s, not to %s", i.Node, i.ClusterID, d.cluster)
	}
	return i, nil
}

// NotifyAlive implements memberlist.AliveDelegate: an error keeps the member out. memberlist itself takes any number of them, one packet for each.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if d.g.roster.full(n.Name) {
		return errFull
	}
	_, err := d.check(n)
	return err
}

// NotifyMerge implements memberlist.MergeDelegate: an error keeps both sides apart.
func (d *delegate) NotifyMerge(peers []*memberlist.Node) error {
	for _, n := range peers {
		if _, err := d.check(n); err != nil {
			return err
		}
	}
	return nil
}

func (d *delegate) heard(n *memberlist.Node) {
	d.g.roster.put(n)
	if i, err := d.check(n); err == nil {
		d.g.book.hear(i)
	}
	d.g.notify()
}

// NotifyJoin implements memberlist.EventDelegate.
func (d *delegate) NotifyJoin(n *memberlist.Node) { d.heard(n) }

// NotifyUpdate implements memberlist.EventDelegate.
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.heard(n) }

// NotifyLeave implements memberlist.EventDelegate.
func (d *delegate) NotifyLeave(n *memberlist.Node) {
	d.g.roster.drop(n)
	d.g.notify()
}

// NodeMeta implements memberlist.Delegate.
func (d *delegate) NodeMeta(int) []byte { return d.meta }

// NotifyMsg implements memberlist.Delegate; messages say nothing, see Gossip.join.
func (d *delegate) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (d *delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (d *delegate) MergeRemoteState([]byte, bool) {}

// levelHandler lowers memberlist's lines to debug: it reports every packet of a
// stranger as an error.
type levelHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h levelHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Add("text", r.Message)
	r.Message = "memberlist reports"
	return h.Handler.Handle(ctx, r)
}

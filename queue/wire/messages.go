package wire

import (
	"cmp"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// Message is one of the message types of this package. Every message names
// the queue it belongs to.
type Message interface {
	QueueID() uint64
	code() byte
	append(b []byte) []byte
	read(d *reader)
}

// ConsumerNo is a consumer's number, unique within one node incarnation and
// queue. 0 stands for basic.get.
type ConsumerNo uint64

// Batch carries operations of a node's stream to the leader.
type Batch struct {
	Queue  uint64
	Stream fsm.Stream
}

// Turn is a consumer's place among those of its queue: it is given once, by the leader
// that attached it, and kept over changes of leader. Earlier sessions come first, then
// lower numbers. The zero Turn is that of a consumer which is not attached.
type Turn struct{ Session, No uint64 }

// Compare orders turns, earlier ones first.
func (t Turn) Compare(o Turn) int {
	if c := cmp.Compare(t.Session, o.Session); c != 0 {
		return c
	}
	return cmp.Compare(t.No, o.No)
}

// Consumer describes a consumer to the leader.
type Consumer struct {
	No       ConsumerNo
	Prefetch uint32 // 0: unlimited
	Priority int32
	// Exclusive asks to be the only consumer.
	Exclusive bool
	// WindowMessages and WindowBytes are what the node can buffer for it now.
	WindowMessages, WindowBytes int64
	Turn                        Turn
}

// Attach adds a consumer. Answered by Attached.
type Attach struct {
	Queue    uint64
	Origin   fsm.Origin
	Consumer Consumer
}

// Attached answers Attach. An empty Refusal means done.
type Attached struct {
	Queue   uint64
	No      ConsumerNo
	Refusal string // "exclusive": in exclusive use
	Turn    Turn   // the place it got
}

// Detach removes a consumer; what it holds stays with its channel, unless Returns says
// that all of it is coming back on the stream. Answered by Detached, behind every
// delivery to it.
type Detach struct {
	Queue   uint64
	Origin  fsm.Origin
	No      ConsumerNo
	Returns bool
}

// Detached answers Detach, or tells that the leader ended the consumer (Gone). Unused
// tells that it was the last one of an auto-delete queue, which has ended and leaves the catalog. Gone, with
// the number of an Attach or a Query, answers that the queue has ended.
type Detached struct {
	Queue  uint64
	No     ConsumerNo
	Gone   bool
	Unused bool
}

// Window gives a consumer room for more deliveries, as its client's socket
// takes them.
type Window struct {
	Queue           uint64
	Origin          fsm.Origin
	No              ConsumerNo
	Messages, Bytes int64
}

// Unsent gives back deliveries that no client has seen: they are ready again as they were, and the log
// has nothing of it. Resync is the No of the node's newest Resync: a leader that knows another one does nothing, for what
// that one does not name is ready already, and may be out again. Level 2 of the cluster.
type Unsent struct {
	Queue  uint64
	Origin fsm.Origin
	Resync uint64
	Runs   []fsm.Run
}

// Get asks for one message, after the node's stream up to After has been
// applied. Answered by Got.
type Get struct {
	Queue  uint64
	Origin fsm.Origin
	Req    uint64
	After  uint64
}

// Got answers Get; Found false means the queue had nothing ready. Session and Resync
// are as in Deliver.
type Got struct {
	Queue     uint64
	Req       uint64
	Session   uint64
	Resync    uint64
	Found     bool
	Item      Item
	Remaining uint32
}

// Query asks for the queue's counts, after the node's stream up to After has
// been applied. Use tells that the queue counts as used by it, for x-expires.
// Answered by Status.
type Query struct {
	Queue  uint64
	Origin fsm.Origin
	Req    uint64
	After  uint64
	Use    bool
	// End has the queue end if it is empty, for queue.delete with if-empty: nothing that is confirmed goes with it. Level 2 of the cluster.
	End EndWhen
}

// EndWhen is what a queue must be free of for a Query to end it.
type EndWhen uint64

// What a queue must be free of.
const (
	EndNever    EndWhen = iota
	EndEmpty            // messages, those that consumers hold or that wait for a retry or a route too
	EndResolved         // and dead letters on their way
)

// Status answers Query.
type Status struct {
	Queue                               uint64
	Req                                 uint64
	Ready, Unacked, Consumers           uint64
	Outbox, Parked, ReadyBytes, Dropped uint64
	Transferred                         uint64 // dead letters ever taken from other queues
	Delayed                             uint64 // returned messages that wait out their retry delay
	OutboxBytes                         uint64 // of the bodies of what Outbox counts
	// Duplicates were dropped, DedupIDs are remembered, DedupForgotten were too early.
	Duplicates, DedupIDs, DedupForgotten uint64
	// Ended tells that the queue has ended as the Query wanted. Without it the counts say why not.
	Ended bool
}

// TxAsk asks for one of two things before and after a transaction. With Last 0: would
// the queue take that many publishes with that many body bytes now? Else: tell when none
// of the outbox items First to Last waits for a target any more. Answered by TxTold.
type TxAsk struct {
	Queue            uint64
	Origin           fsm.Origin
	Req              uint64
	Publishes, Bytes uint64
	First, Last      uint64
}

// TxTold answers TxAsk; Refusal is Done for yes.
type TxTold struct {
	Queue   uint64
	Req     uint64
	Refusal fsm.OutcomeKind
}

// Item is one delivery.
type Item struct {
	No          ConsumerNo
	ID          queue.MessageID
	Attempt     uint32
	Failed      uint32
	Redelivered bool
	Message     []byte // fsm.EncodeMessage's output
}

// Deliver carries deliveries to the consumers of one node. Resync is the No of the
// newest Resync the leader had from the node: a node drops deliveries that are older
// than its newest Resync, because that one did not name them and they are ready again, and those
// of a session older than one it knows.
type Deliver struct {
	Queue   uint64
	Session uint64
	Resync  uint64
	Items   []Item
}

// Answer tells a node how far its stream was applied.
type Answer struct {
	Queue  uint64
	Origin fsm.Origin
	UpTo   uint64
	// Above: Outcomes are complete for sequences above it, up to UpTo. A node that has
	// not got the answers up to there must ask again, by a Resync.
	Above uint64
	// Rewind: the leader expects Next; send everything from there again.
	Rewind   bool
	Next     uint64
	Outcomes []fsm.Outcome
	// Pace, unless 0: the node sends that many publishes a second, in bursts, the next when all of the one before are answered. It holds
	// until the next Answer. Level 2 of the cluster.
	Pace uint64
}

// NotLeader is sent back for a message that reached a node that does not lead
// the queue, and by a leader that ends to the nodes whose messages it took. Hint is the
// leader it knows of, or "".
type NotLeader struct {
	Queue uint64
	Hint  string
}

// RollCall is a beginning leader's question to each live node.
type RollCall struct {
	Queue   uint64
	Session uint64
}

// Hold is a delivery that a node's client has not settled, or whose
// settlement the node does not know to be committed.
type Hold struct {
	No      ConsumerNo
	ID      queue.MessageID
	Attempt uint32
	// Settled is the sequence of the operation that settles it, 0 if there is none.
	Settled uint64
}

// Resync tells a leader all of a node's consumers of the queue and what they
// hold; it replaces what the leader knew. Session is the RollCall's, or 0. No counts
// the Resyncs of the node's stream, to whatever leader, from 1.
type Resync struct {
	Queue   uint64
	Session uint64
	No      uint64
	// Newest is the newest session the node has heard from: a leader of
	// an older one learns that it is deposed, and says NotLeader.
	Newest    uint64
	Origin    fsm.Origin
	Consumers []Consumer
	Held      []Hold
	// Attaching are consumers that the node does not know to be attached: their Attach comes behind this, or a Detach if nobody waits for
	// them any more. From level 2 of the cluster on.
	Attaching []ConsumerNo
}

// Transfer carries dead letters from the source's leader to the target's.
type Transfer struct {
	Target uint64
	// Urgent: a part of a transaction is among these or behind them, or they are
	// withdrawals; a full target takes them.
	Urgent bool
	In     fsm.TransferIn
}

// TransferAnswer tells the source's leader how far the target took them.
type TransferAnswer struct {
	Source uint64 // the queue this message goes to
	Target uint64
	Epoch  uint32
	UpTo   uint64
	Gap    bool // send again from UpTo+1
	Full   bool // try again later
	Gone   bool // the target is closed with final watermark UpTo
	// Withdrawn are the sequences up to UpTo that the target has not taken and will not
	// take, ascending: all that the source's log may not have recorded.
	Withdrawn []uint64
}

// TargetClosed tells a source's leader that the target is closed with this
// final watermark. Answered by TargetForgotten once it is in the source's log.
type TargetClosed struct {
	Source    uint64 // the queue this message goes to
	Epoch     uint32
	Target    uint64
	Watermark uint64
	Withdrawn []uint64 // as in TransferAnswer
}

// TargetForgotten answers TargetClosed.
type TargetForgotten struct {
	Target uint64 // the queue this message goes to
	Source uint64
}

// QueueID implements Message: the queue whose leader or streams the message is for.
func (m *Batch) QueueID() uint64           { return m.Queue }
func (m *Attach) QueueID() uint64          { return m.Queue }
func (m *Attached) QueueID() uint64        { return m.Queue }
func (m *Detach) QueueID() uint64          { return m.Queue }
func (m *Detached) QueueID() uint64        { return m.Queue }
func (m *Window) QueueID() uint64          { return m.Queue }
func (m *Get) QueueID() uint64             { return m.Queue }
func (m *Got) QueueID() uint64             { return m.Queue }
func (m *Query) QueueID() uint64           { return m.Queue }
func (m *Status) QueueID() uint64          { return m.Queue }
func (m *Deliver) QueueID() uint64         { return m.Queue }
func (m *Answer) QueueID() uint64          { return m.Queue }
func (m *NotLeader) QueueID() uint64       { return m.Queue }
func (m *RollCall) QueueID() uint64        { return m.Queue }
func (m *Resync) QueueID() uint64          { return m.Queue }
func (m *Transfer) QueueID() uint64        { return m.Target }
func (m *TransferAnswer) QueueID() uint64  { return m.Source }
func (m *TargetClosed) QueueID() uint64    { return m.Source }
func (m *TargetForgotten) QueueID() uint64 { return m.Target }
func (m *TxAsk) QueueID() uint64           { return m.Queue }
func (m *TxTold) QueueID() uint64          { return m.Queue }
func (m *Unsent) QueueID() uint64          { return m.Queue }

package fsm

import (
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// Entry is the decoded payload of one log entry of a queue's group: a batch of
// commands under one stamp.
type Entry struct {
	// Session and Ordinal let the leader that proposed the entry recognise it.
	// A session is unique per activation of a leader.
	Session, Ordinal uint64
	// TimeMillis is the leader's machine time. Apply uses the larger of this
	// and the time it has.
	TimeMillis int64
	// CatalogRev is the catalog revision the leader had when it proposed.
	CatalogRev uint64
	// Mark raises the delivered mark: messages up to it may have been
	// delivered. MarkSelf raises it to the last message this entry enqueues.
	Mark     queue.MessageID
	MarkSelf bool
	Commands []Command
}

// Command is one of the command types below.
type Command interface{ command() }

// Origin is one incarnation of a node as the sender of a stream. Incarnations
// grow; the machine keeps one stream for each node, of its newest incarnation.
type Origin struct {
	Node        uint32
	Incarnation uint64
}

// Stream is a run of operations of one origin: operation i has sequence
// First+i. Apply takes watermark+1, skips what is at or below the watermark and
// refuses what would leave a gap.
type Stream struct {
	Origin Origin
	First  uint64
	// AnsweredUpTo is the highest sequence whose outcome the origin has seen;
	// outcomes up to it are forgotten.
	AnsweredUpTo uint64
	Ops          []Op
}

// Op is one of Publish, Settle, Purge, Tx, Cancel.
type Op interface{ op() }

// Verdict is what the leader decided on a publish when it proposed it, because
// only it knows which messages are held.
type Verdict uint8

// The verdicts.
const (
	Accept          Verdict = iota
	RefuseFull              // over max-length with reject-publish
	RefuseFullDLX           // the same with reject-publish-dlx: refused, and moved to the outbox as maxlen
	RefuseOutbox            // the outbox is at its bound
	RefuseConsumers         // immediate, and no consumer could take it
)

// Publish enqueues one message.
type Publish struct {
	Verdict Verdict
	// Priority as published; HasPriority false takes the queue's default.
	Priority    uint8
	HasPriority bool
	// Immediate asks for a consumer that takes the message at once. The leader decides, by
	// the verdict; apply ignores it.
	Immediate bool
	BodyBytes uint32
	// Tell asks for the message's id, by the outcome Kept. It belongs to level 2 of the cluster.
	Tell bool
	// TTLMillis is the message's own expiration, -1 if it has none. The smaller
	// of this and the queue's decides.
	TTLMillis int64
	// Dedup is the id under which the message counts as sent already; zero if it has none.
	Dedup queue.DedupID
	// Message is EncodeMessage's output. It stays encoded on its way through
	// the leader and apply: nobody parses it before it is delivered or dies.
	Message []byte
}

// SettleKind says how deliveries end.
type SettleKind uint8

// The kinds of settlement.
const (
	Ack            SettleKind = iota
	Discard                   // reject or nack without requeue: dies as rejected
	RequeueFailed             // reject with requeue, channel or connection gone: counts toward the delivery limit
	RequeueCounted            // nack with requeue, recover: counts as an attempt only
	// Recount: the same, without the queue's retry delay. Of the leader only, for what another one
	// may have delivered before it.
	Recount
)

// Requeues tells whether the messages go back into the queue.
func (k SettleKind) Requeues() bool {
	return k == RequeueFailed || k == RequeueCounted || k == Recount
}

// Run names deliveries of consecutive messages under one attempt number.
type Run struct {
	First   queue.MessageID
	Count   uint32
	Attempt uint32
}

// Settle ends deliveries. Messages that are gone or have another attempt
// number are skipped.
type Settle struct {
	Kind SettleKind
	Runs []Run
	// Detail is what the client says of why, of a Discard that is not part of a transaction: UTF-8, at most dlx.DetailMax bytes.
	// It belongs to level 2 of the cluster.
	Detail string
}

// Purge removes every message with id <= UpTo but those in Except (the held
// ones, which the leader names). Its outcome is the number removed.
type Purge struct {
	UpTo   queue.MessageID
	Except []queue.IDRange
}

// Tx does its operations here and hands its parts for other queues to the outbox,
// all of it or nothing. Unlike those of a Settle, its acks and discards take their
// messages under whatever attempt number they have by now.
type Tx struct {
	// Verdict is the leader's on the whole.
	Verdict Verdict
	Ops     []Op // Publish, with verdict Accept, and Settle
	Parts   []TxPart
}

// TxPart is what a transaction does in other queues. Targets are queue ids, ascending,
// each once.
type TxPart struct {
	Targets []uint64
	Part    []byte // EncodePart's output
}

// Return is a Settle by the leader itself: the consumers' node is gone.
type Return struct {
	Kind SettleKind
	Runs []Run
}

// Expire lets the named messages die as expired, if present and due. Where some may stay, they
// are at their place, without a time to live and out of everybody's reach, until Route has decided.
type Expire struct{ IDs []queue.IDRange }

// DropHeads lets the named messages die as maxlen, if present.
type DropHeads struct{ IDs []queue.IDRange }

// OutboxID is the dense number of an outbox item of one queue.
type OutboxID = dlx.ItemID

// NoRoute says what becomes of an item that has no target.
type NoRoute = dlx.NoRoute

// What becomes of an item without targets.
const (
	HasTargets   = dlx.HasTargets
	DropDisabled = dlx.DropDisabled // no dead-letter exchange (any more), or it is missing
	DropUnrouted = dlx.DropUnrouted
	DropCycle    = dlx.DropCycle
	ParkUnrouted = dlx.ParkUnrouted // kept, routed again when the catalog changes
	ParkCycle    = dlx.ParkCycle    // kept until released
	Stay         = dlx.Stay         // lives on at its place without a time to live
)

// Routed is one decision of Route.
type Routed struct {
	Item    OutboxID
	Targets []uint64 // queue ids, each once, in a fixed order
	NoRoute NoRoute  // if there are no targets
}

// Route freezes the targets of outbox items that are still unrouted. Apply
// assigns each (this queue, target) pair its next dense sequence.
type Route struct {
	Items []Routed
	// Settings is the revision of the settings under which it was decided: apply passes
	// over decisions under others. 0 stands for any.
	Settings uint64
}

// Source is a queue as the sender of transfers. Epoch rises after a
// lost-quorum recovery.
type Source struct {
	Queue uint64
	Epoch uint32
}

// Transfer is one message on its way into a target, or the withdrawal of one, or
// a part of a transaction.
type Transfer struct {
	Withdrawn bool
	// Part is EncodePart's output, nil for a message; the fields below are not used with it.
	Part        []byte
	Priority    uint8
	HasPriority bool
	// TTLMillis is the message's own expiration, if HasTTL: that of a message which
	// was delayed and is published only now.
	TTLMillis int64
	HasTTL    bool
	// DelayMillis is for how long the queue of a delayed exchange keeps the message;
	// other queues take no notice. 0: not at all.
	DelayMillis int64
	// Dedup is as in a Publish, for a message that was delayed and is published only now.
	Dedup queue.DedupID
	// Dead: it comes as a dead letter, not by a redrive or as a publish that was delayed.
	Dead      bool
	Message   []byte // EncodeMessage's output
	BodyBytes uint32
}

// TransferIn is a run of transfers of one source: transfer i has sequence
// First+i. Length limits never refuse it; the leader answers "full" instead of
// proposing. A source the machine does not know is admitted only if the entry's
// CatalogRev is at least that of the last ForgetSources.
type TransferIn struct {
	Source Source
	First  uint64
	// AnsweredUpTo is the highest sequence that the source's log has recorded as done, with
	// all below. The target forgets up to there what was withdrawn.
	AnsweredUpTo uint64
	Items        []Transfer
}

// TransferDone records that Target's log has committed this queue's transfers
// up to UpTo. The last target of an item drops it, unless it was withdrawn from one.
type TransferDone struct {
	Target uint64
	UpTo   uint64
	// Withdrawn are the pending sequences up to UpTo that were withdrawn, ascending:
	// all of them.
	Withdrawn []uint64
}

// TargetGone records that Target was closed with this final watermark: items
// up to it count as taken, but those withdrawn (as in TransferDone); the target leaves the
// others; an item left with nothing taken becomes unrouted again.
type TargetGone struct {
	Target    uint64
	Watermark uint64
	Withdrawn []uint64
}

// TargetMoved records that Target goes on as the queue To, which has taken this queue's transfers up to Watermark, but those withdrawn
// (as in TransferDone). The others go to that queue, under sequences of their own.
type TargetMoved struct {
	Target    uint64
	Watermark uint64
	Withdrawn []uint64
	To        uint64
}

// Withdraw asks for dead letters back: those under way to Target with sequences up to UpTo,
// because their route has changed. Their transfers are withdrawals from now on; an item
// keeps its leg until TransferDone or TargetGone tells which came first.
type Withdraw struct {
	Target uint64
	UpTo   uint64
}

// Release makes parked items unrouted again: all of the named kind.
type Release struct{ Kind NoRoute }

// ForgetSources drops the watermarks of sources whose queues are gone for good,
// and what is known of them as closed targets. From then on unknown sources and
// unknown targets of a Route need an entry whose CatalogRev is at least this one's.
type ForgetSources struct{ Sources []Source }

// SetSettings carries the queue's effective settings of a catalog revision;
// older ones are ignored. With another dead-letter exchange or key all dead letters under
// way are withdrawn and parked ones are unrouted again; without dead lettering they go on as before.
type SetSettings struct {
	Revision uint64
	Settings queue.Settings
	Name     string // the queue's name, for death records
	VHost    string
}

// Close ends the queue for clients: live messages are dropped, unless the settings want them
// dead-lettered (Bury); later publishes
// and purges get outcome Gone, later settlements find nothing, later transfers are
// answered with the final watermark. The outbox drains.
type Close struct{}

// Consumed records that the queue has had a consumer: without one, an auto-delete
// queue goes.
type Consumed struct{}

// Tenure makes a consumer the holder of a queue with a single active consumer: it alone
// gets messages until another one is named. The leader names it before it delivers, so
// that the next leader knows who may be at work.
type Tenure struct {
	Origin   Origin // the node of its client, zero for nobody
	Consumer uint64 // its number there
}

func (Stream) command()        {}
func (Return) command()        {}
func (Expire) command()        {}
func (DropHeads) command()     {}
func (Route) command()         {}
func (TransferIn) command()    {}
func (TransferDone) command()  {}
func (TargetGone) command()    {}
func (TargetMoved) command()   {}
func (Withdraw) command()      {}
func (Release) command()       {}
func (ForgetSources) command() {}
func (SetSettings) command()   {}
func (Close) command()         {}
func (Consumed) command()      {}
func (Tenure) command()        {}

func (Publish) op() {}
func (Settle) op()  {}
func (Purge) op()   {}
func (Tx) op()      {}

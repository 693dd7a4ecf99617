package dlx

// Reason says why a message died; String gives RabbitMQ's word for it.
type Reason uint8

// The reasons of dead-lettering.
const (
	Rejected Reason = iota + 1
	Expired
	MaxLen
	DeliveryLimit
	// Transaction is no death: the item is a part of a transaction for other queues.
	Transaction
	// QueueRemoved is our own word: the queue was deleted or expired with the message in it.
	QueueRemoved
	// Redrive is no death: the item is a live message on its way back to where it died.
	Redrive

	// LastDeath is the highest reason of a death.
	LastDeath = QueueRemoved
)

// Death is one record of a message's own history, keyed by (Queue, Reason),
// as SEMANTICS of RabbitMQ 4 has it: newest first, first values kept.
type Death struct {
	Queue              string
	Reason             Reason
	Count              uint64
	FirstMillis        int64
	LastMillis         int64
	Exchange           string
	RoutingKeys        []string // publish key, then CC keys; never BCC
	OriginalExpiration string   // the expiration property when this record was created
	HasExpiration      bool
	// Redriven: somebody sent the message back after this death, before those in front of it.
	// Of a history at most one record has it, the newest such.
	Redriven bool
	// Before is how much of Count is older than the newest redrive, or was said by a client.
	Before uint64
	// Detail is what the client said that rejected it last, "" if it said nothing: UTF-8, at most DetailMax bytes.
	Detail string
}

// DetailMax is how many bytes a client may say of why it rejects a message.
const DetailMax = 255

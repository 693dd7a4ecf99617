package queue

// MessageID is the place of a message in its queue: a dense sequence, assigned
// by apply when the message is enqueued, never used twice. Delivery order
// inside a priority is id order, so a requeued message finds its original place.
type MessageID uint64

// IDRange is an inclusive range of message ids.
type IDRange struct{ First, Last MessageID }

// Ref says where the bytes of a message lie: in the payload of the log entry
// Index of the queue's own group, at Offset, Length bytes long. The bytes are
// an encoded fsm.Message.
type Ref struct {
	Index  uint64
	Offset uint32
	Length uint32
}

// Message is what the queue's state knows of a live message. Bodies stay in
// the log.
type Message struct {
	ID  MessageID
	Ref Ref
	// BodyBytes counts toward max-length-bytes.
	BodyBytes uint32
	// ExpiresAt is the machine time in ms at which the message expires, fixed
	// at enqueue; 0 means never.
	ExpiresAt int64
	Priority  uint8
	// Attempt counts how often the message came back after a delivery, for
	// whatever cause (x-acquired-count). A settlement names the attempt it
	// belongs to; others are ignored.
	Attempt uint32
	// Failed counts the returns that count toward the delivery limit
	// (x-delivery-count).
	Failed uint32
}

// Overflow is the value of x-overflow.
type Overflow uint8

// The three overflow behaviours.
const (
	DropHead Overflow = iota
	RejectPublish
	RejectPublishDLX
)

// Settings are a queue's effective settings: arguments merged with policies by
// the catalog, carried into the machine by a command. Absent limits are -1.
type Settings struct {
	MessageTTLMillis int64 // -1: none
	MaxLength        int64 // ready messages, -1: none
	MaxLengthBytes   int64 // body bytes of ready messages, -1: none
	Overflow         Overflow
	DeliveryLimit    int64 // failed returns allowed, -1: unlimited
	// MaxPriority is the highest priority level; 0 means a plain FIFO.
	MaxPriority uint8
	// DefaultPriority is the level of a message without the property.
	DefaultPriority uint8

	DeadLetter         bool // a dead-letter exchange is configured ("" is a legal name)
	DeadLetterExchange string
	// DeadLetterRoutingKey replaces the message's keys if DeadLetterKeySet.
	DeadLetterRoutingKey string
	DeadLetterKeySet     bool
	AtLeastOnce          bool // x-dead-letter-strategy: park what has no route
	// DeadLetterOnRemoval: what is in the queue when it is removed is dead-lettered.
	DeadLetterOnRemoval bool
	// DeathTotal: dead letters carry the header x-death-total, how often they have died.
	DeathTotal bool
	// ContinueHistory: the first death here goes on from the x-death that a client has sent.
	ContinueHistory bool
	// StopTTL: an expired message that could only go round loses its time to live and stays where it is.
	StopTTL bool
	// MaxHops: so does one that has died by itself that often before; 0: no such bound.
	MaxHops int64
	// DeadLettersKeep: MessageTTLMillis is not for messages that come as dead letters.
	DeadLettersKeep bool
	// OutboxMax and OutboxMaxBytes bound the outbox; a full outbox refuses
	// client publishes only.
	OutboxMax      int64
	OutboxMaxBytes int64

	// Delayed: the messages wait for their hour instead of consumers. One that expires is
	// not dead; it is routed on from DeadLetterExchange, which is then the delayed exchange
	// that the queue belongs to.
	Delayed bool

	// Paused: consumers and gets are given nothing.
	Paused bool

	Retry RetryDelay

	Dedup Dedup
}

package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// Filter chooses messages of a queue, most of them by their newest death. What is set must all hold.
type Filter struct {
	// Reasons why they died: rejected, expired, maxlen, delivery_limit, queue_removed.
	Reasons []string
	// From is the queue in which they died.
	From string
	// OlderThan and NewerThan are how long ago they died, at least and at most. 0: at any time; one that is negative is refused.
	OlderThan, NewerThan time.Duration
	// IDs are their numbers in the queue, as in [Peeked]; MessageIDs are their property.
	IDs        []uint64
	MessageIDs []string
	// Header must have the value, in text.
	Header, HeaderValue string
}

func (f *Filter) proto() (*warrenv1.MessageFilter, error) {
	if f.OlderThan < 0 || f.NewerThan < 0 {
		return nil, invalid("messages that died more than %v and less than %v ago", f.OlderThan, f.NewerThan)
	}
	return &warrenv1.MessageFilter{
		Reasons: f.Reasons, FromQueue: f.From, OlderThanMillis: millis(f.OlderThan), NewerThanMillis: millis(f.NewerThan),
		Ids: f.IDs, MessageIds: f.MessageIDs, Header: f.Header, HeaderValue: f.HeaderValue,
	}, nil
}

// millis is a duration in ms. A short one is not 0, which would stand for none.
func millis(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d-1)/time.Millisecond) + 1
}

// State is where a message stands in its queue.
type State int

// The states. Ready is what peeking looks at by default.
const (
	Ready   State = iota + 1
	Delayed       // it came back, and waits out a retry delay
	Unacked       // a client has it
	Outbox        // it is dead, and its targets are named or about to be
	Parked        // it is dead, and has no target
)

// Peeked is a message as it lies in its queue.
type Peeked struct {
	// Message has as much of the body as was wanted; BodyBytes is how long that is.
	Message
	BodyBytes uint64
	// ID is its number in the queue.
	ID uint64
	// Redelivered, DeliveryCount, AcquiredCount and Deaths are as in a Delivery.
	Redelivered                  bool
	DeliveryCount, AcquiredCount uint32
	Deaths                       []Death
	// DeadReason and DeadDetail tell in the states Outbox and Parked why it died, and DeadAt when.
	DeadReason, DeadDetail string
	DeadAt                 time.Time
}

// PeekConfig says what to look at. The zero value is all ready messages.
type PeekConfig struct {
	State  State
	Filter Filter
	// BodyBytes is how much of each body is wanted. Default 50,000; at most 262,144.
	BodyBytes uint32
}

// Peek looks at the messages of a queue in their order, and takes none: no count, flag or place changes. It asks for one page after the other, so
// that what comes and goes meanwhile is seen or not. After an error it ends. It takes a user whom the management API would let look.
func (c *Client) Peek(ctx context.Context, queue string, cfg PeekConfig) iter.Seq2[*Peeked, error] {
	return func(yield func(*Peeked, error) bool) {
		filter, err := cfg.Filter.proto()
		if err != nil {
			yield(nil, err)
			return
		}
		req := &warrenv1.PeekRequest{Vhost: c.cfg.VHost, Queue: queue, State: warrenv1.MessageState(cfg.State), Filter: filter, PageSize: peekPage}
		if cfg.BodyBytes > 0 {
			req.BodyBytesMax = &cfg.BodyBytes
		}
		for {
			var resp *warrenv1.PeekResponse
			if err := c.messages(ctx, func(m warrenv1.MessageServiceClient) (err error) {
				resp, err = m.Peek(ctx, req)
				return err
			}); err != nil {
				yield(nil, err)
				return
			}
			for _, p := range resp.GetMessages() {
				if !yield(peekedOf(p), nil) {
					return
				}
			}
			if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
				return
			}
		}
	}
}

// peekPage is how many messages are asked for at once.
const peekPage = 100

func peekedOf(p *warrenv1.PeekedMessage) *Peeked {
	m := &Peeked{
		Message: messageOf(p.GetMessage()), BodyBytes: p.GetBodyBytes(), ID: p.GetId(), Redelivered: p.GetRedelivered(), DeliveryCount: p.GetDeliveryCount(),
		AcquiredCount: p.GetAcquiredCount(), Deaths: deathsOf(p.GetDeaths()), DeadReason: p.GetDeadReason(), DeadDetail: p.GetDeadDetail(),
	}
	if at := p.GetDeadAtMillis(); at > 0 {
		m.DeadAt = time.UnixMilli(int64(at)).UTC()
	}
	return m
}

// messages makes a call that may be made twice.
func (c *Client) messages(ctx context.Context, f func(warrenv1.MessageServiceClient) error) error {
	return c.call(ctx, func(conn *grpc.ClientConn) error { return f(warrenv1.NewMessageServiceClient(conn)) })
}

// RedriveConfig says what to send back. The zero value is all ready messages, each into the queue in which it died last.
type RedriveConfig struct {
	Filter Filter
	// Queue is where they go instead.
	Queue string
	// Rate is how many a second at most; 0: no limit.
	Rate uint32
}

// Redriven is what came of a redrive.
type Redriven struct {
	// Moved are in the log of their target, and nowhere else.
	Moved uint64
	// The others are where they were: Returned as their target had gone or was full when the redrive was stopped, Missing as theirs is not there,
	// NoOrigin as no death says where they come from, Busy as a consumer had them.
	Returned, Missing, NoOrigin, Busy uint64
	// Stopped: somebody has stopped it before its end.
	Stopped bool
}

// Redrive sends dead letters of a queue back, and waits until that is done. It survives what nodes do, and the end of ctx too, after which
// somebody else may stop it (warren ctl dlq). ErrPreconditionFailed: the queue has one already. ErrNotFound: the queue is deleted, perhaps declared anew. What starts it is not tried again: when its answer is lost, with
// ErrUnavailable, the redrive may be at work. It takes a user with the tag policymaker or administrator.
func (c *Client) Redrive(ctx context.Context, queue string, cfg RedriveConfig) (Redriven, error) {
	filter, err := cfg.Filter.proto()
	if err != nil {
		return Redriven{}, err
	}
	want := &warrenv1.Redrive{Filter: filter, Rate: cfg.Rate}
	if cfg.Queue != "" {
		want.To, want.TargetQueue = warrenv1.RedriveTo_REDRIVE_TO_QUEUE, cfg.Queue
	}
	begun, err := warrenv1.NewMessageServiceClient(c.Conn()).StartRedrive(ctx, &warrenv1.StartRedriveRequest{Vhost: c.cfg.VHost, Queue: queue, Redrive: want})
	if err != nil {
		return Redriven{}, errorOf(ctx, err)
	}
	var unknown time.Time // since when the queue does not know of it
	for status := begun.GetStatus(); ; {
		result := Redriven{
			Moved: status.GetMoved(), Returned: status.GetReturned(), Missing: status.GetMissing(), NoOrigin: status.GetNoOrigin(), Busy: status.GetBusy(),
			Stopped: status.GetState() == warrenv1.RedriveState_REDRIVE_STATE_STOPPED,
		}
		if result.Stopped || status.GetState() == warrenv1.RedriveState_REDRIVE_STATE_DONE {
			return result, nil
		}
		select {
		case <-time.After(redriveLook):
		case <-ctx.Done():
			return result, context.Cause(ctx)
		}
		var now *warrenv1.RedriveStatus
		if err := c.messages(ctx, func(m warrenv1.MessageServiceClient) error {
			resp, err := m.GetRedrive(ctx, &warrenv1.GetRedriveRequest{Vhost: c.cfg.VHost, Queue: queue})
			now = resp.GetStatus()
			return err
		}); err != nil {
			return result, err
		}
		switch mine := begun.GetStatus(); {
		case now.GetNumber() == mine.GetNumber() && now.GetStartedAtMillis() == mine.GetStartedAtMillis():
			status, unknown = now, time.Time{}
		case now.GetNumber() > mine.GetNumber():
			return result, invalid("another redrive of queue '%s' has begun, and what came of this one is not known", queue)
		case unknown.IsZero(): // a leader that has just begun may not have it yet
			unknown = time.Now()
		case time.Since(unknown) > redriveUnknown:
			return result, &Error{Code: codes.NotFound, Message: "queue '" + queue + "' was declared anew, and does not know of the redrive"}
		}
	}
}

// redriveUnknown is for how long a queue that does not know of a redrive is asked again.
const redriveUnknown = 5 * time.Second

// redriveLook is how often a redrive is asked after.
const redriveLook = 100 * time.Millisecond

package grpc

import (
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	wire "github.com/warrenmq/warren/amqp"
	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/broker"
)

func TestBadLooks(t *testing.T) {
	filters := map[string]*warrenv1.MessageFilter{
		"reason":               {Reasons: []string{"boredom"}},
		"age":                  {OlderThanMillis: math.MaxUint64},
		"newer age":            {NewerThanMillis: math.MaxInt64},
		"value without header": {HeaderValue: "v"},
		"long text":            {FromQueue: strings.Repeat("q", 1025)},
		"many numbers":         {Ids: make([]uint64, 1001)},
	}
	for name, f := range filters {
		_, err := peekOf(&warrenv1.PeekRequest{Filter: f})
		wantInvalid(t, "peek: "+name, err)
		_, err = redriveOf(&warrenv1.Redrive{Filter: f})
		wantInvalid(t, "redrive: "+name, err)
	}
	for name, req := range map[string]*warrenv1.PeekRequest{
		"state":      {State: 6},
		"no state":   {State: -1},
		"page":       {PageSize: 1001},
		"large page": {PageSize: math.MaxUint32},
		"token":      {PageToken: "x"},
		"body":       {BodyBytesMax: proto.Uint32(256<<10 + 1)},
		"queue":      {Queue: strings.Repeat("q", 256)},
	} {
		_, err := peekOf(req)
		wantInvalid(t, name, err)
	}
	for name, r := range map[string]*warrenv1.Redrive{
		"way":             {To: 5},
		"no way":          {To: -1},
		"no queue":        {To: warrenv1.RedriveTo_REDRIVE_TO_QUEUE},
		"queue":           {TargetQueue: "q"},
		"long queue":      {To: warrenv1.RedriveTo_REDRIVE_TO_QUEUE, TargetQueue: strings.Repeat("q", 256)},
		"discard and way": {Discard: true, To: warrenv1.RedriveTo_REDRIVE_TO_LAST_QUEUE},
	} {
		_, err := redriveOf(r)
		wantInvalid(t, name, err)
	}
}

// TestRetriedMessages: whether a message was sent back before is asked for, and told.
func TestRetriedMessages(t *testing.T) {
	for _, want := range []*bool{nil, new(false), new(true)} {
		f := &warrenv1.MessageFilter{Retried: want}
		p, err := peekOf(&warrenv1.PeekRequest{Filter: f})
		r, err2 := redriveOf(&warrenv1.Redrive{Filter: f})
		if err != nil || err2 != nil || p.Filter.Retried != want || r.Filter.Retried != want {
			t.Errorf("%v: %+v %v, %+v %v", want, p.Filter, err, r.Filter, err2)
		}
	}
	m := &broker.PeekedMessage{Deaths: []broker.Death{{Queue: "q", Count: 5, Before: 2}, {Queue: "r", Count: 1, Before: 1}}, Reason: "expired"}
	if p := peekedFor(m); !p.GetRetried() || p.GetDeathsSinceRetry() != 4 || p.GetDeaths()[0].GetCountBeforeRetry() != 2 {
		t.Errorf("%v", p)
	}
	if p := peekedFor(&broker.PeekedMessage{Deaths: []broker.Death{{Queue: "q", Count: 5}}}); p.GetRetried() || p.GetDeathsSinceRetry() != 0 {
		t.Errorf("%v", p)
	}
}

func wantInvalid(t *testing.T, what string, err error) {
	t.Helper()
	if r, ok := errors.AsType[*refusal](err); !ok || r.reason != reasonInvalid {
		t.Errorf("%s: %v", what, err)
	}
}

// FuzzLook: whatever an operator asks for is refused, or something that the broker understands.
func FuzzLook(f *testing.F) {
	filter := &warrenv1.MessageFilter{Reasons: []string{"expired"}, Ids: []uint64{3, 1}, OlderThanMillis: 1, Header: "h", HeaderValue: "v"}
	peek, _ := proto.Marshal(&warrenv1.PeekRequest{Queue: "q", State: warrenv1.MessageState_MESSAGE_STATE_PARKED, Filter: filter, PageSize: 1, PageToken: "0.1"})
	redrive, _ := proto.Marshal(&warrenv1.Redrive{To: warrenv1.RedriveTo_REDRIVE_TO_QUEUE, TargetQueue: "q", Rate: 1, Filter: filter})
	f.Add(peek, redrive)
	f.Fuzz(func(t *testing.T, peek, redrive []byte) {
		req, want := &warrenv1.PeekRequest{}, &warrenv1.Redrive{}
		if proto.Unmarshal(peek, req) == nil {
			if p, err := peekOf(req); err != nil {
				wantInvalid(t, "peek", err)
			} else if err := p.Validate(); err != nil || p.State == "" {
				t.Fatalf("%v: %v", p, err)
			}
		}
		if proto.Unmarshal(redrive, want) == nil {
			if r, err := redriveOf(want); err != nil {
				wantInvalid(t, "redrive", err)
			} else if err := r.Validate(); err != nil {
				t.Fatalf("%v: %v", r, err)
			}
		}
	})
}

// TestCountsOfFetched: what Get tells of attempts is the queue's word. A client that passes on all headers of what it got sends counts along.
func TestCountsOfFetched(t *testing.T) {
	t.Parallel()
	var props wire.Properties
	props.SetHeaders(wire.Table{{Name: "x-acquired-count", Value: int64(-1)}, {Name: "x-delivery-count", Value: int64(7)}})
	for _, m := range []broker.Fetched{{}, {Acquired: 3, Failed: 2}} {
		m.Properties = props.AppendTo(nil)
		if d := fetchedFor(1, &m); d.GetDeliveryCount() != m.Failed || d.GetAcquiredCount() != m.Acquired {
			t.Errorf("got %d and %d, want %d and %d", d.GetDeliveryCount(), d.GetAcquiredCount(), m.Failed, m.Acquired)
		}
	}
}

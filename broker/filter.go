package broker

import (
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/dlx"
)

// Death is one record of a message's history.
type Death = dlx.Death

// Filter chooses messages of a queue by their newest death, by number and by properties.
// What is set must all hold; the zero Filter takes every message.
type Filter struct {
	Reasons []string `json:"reasons,omitempty"` // RabbitMQ's words
	From    string   `json:"from,omitempty"`    // the queue in which the message died
	// OlderThan and NewerThan bound the time since the death; 0: no bound.
	OlderThan  time.Duration `json:"older_than,omitempty"`
	NewerThan  time.Duration `json:"newer_than,omitempty"`
	IDs        []uint64      `json:"ids,omitempty"`         // numbers in the queue
	MessageIDs []string      `json:"message_ids,omitempty"` // of the property
	// Header names a header that must have the value, in text.
	Header      string `json:"header,omitempty"`
	HeaderValue string `json:"header_value,omitempty"`
	// Retried, if it is not nil, asks whether somebody sent the message back before, after a death.
	Retried *bool `json:"retried,omitempty"`
}

// resolve gives the filter the form that a queue's leader and log use. now is in ms.
func (f *Filter) resolve(now int64) (dlx.Filter, error) {
	d := dlx.Filter{Queue: f.From, IDs: slices.Clone(f.IDs), MessageIDs: f.MessageIDs, Header: f.Header, HeaderValue: f.HeaderValue}
	slices.Sort(d.IDs)
	for _, word := range f.Reasons {
		r, ok := dlx.ParseReason(word)
		if !ok {
			return d, Errorf(PreconditionFailed, "reason '%s' is none of %s", word, strings.Join(dlx.ReasonWords(), ", "))
		}
		d.Reasons = append(d.Reasons, r)
	}
	if f.OlderThan < 0 || f.NewerThan < 0 {
		return d, Errorf(PreconditionFailed, "an age is negative")
	}
	if f.OlderThan > 0 {
		d.DiedBefore = max(1, now-f.OlderThan.Milliseconds())
	}
	if f.NewerThan > 0 {
		d.DiedAfter = max(1, now-f.NewerThan.Milliseconds())
	}
	if f.Retried != nil {
		d.Retried = dlx.NeverRetried
		if *f.Retried {
			d.Retried = dlx.OnlyRetried
		}
	}
	if err := d.Validate(); err != nil {
		return d, Errorf(PreconditionFailed, "%v", err)
	}
	return d, nil
}

// usable says whether all nodes know what the filter asks for: one that does not would take every message.
func (b *Broker) usable(f *Filter) error {
	if f.Retried != nil && b.cat.View().Level() < 2 {
		return Errorf(PreconditionFailed, "messages can be chosen by whether they were retried when all nodes run this version: see enable_feature_flag")
	}
	return nil
}

package dlx

import (
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

func TestFilter(t *testing.T) {
	deaths := []Death{
		{Queue: "q", Reason: Expired, Count: 2, FirstMillis: 1000, LastMillis: 5000},
		{Queue: "w", Reason: Rejected, Count: 1, FirstMillis: 2000, LastMillis: 2000, Before: 1},
	}
	props, err := amqp.Rewrite(nil, func(p *amqp.Properties) {
		p.SetMessageID("m1")
		p.SetHeaders(amqp.Table{{Name: "tenant", Value: "blue"}, {Name: "n", Value: int32(7)}, {Name: "raw", Value: []byte("b")}})
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		f    Filter
		want bool
	}{
		"everything":      {Filter{}, true},
		"reason":          {Filter{Reasons: []Reason{MaxLen, Expired}}, true},
		"older reason":    {Filter{Reasons: []Reason{Rejected}}, false},
		"queue":           {Filter{Queue: "q"}, true},
		"older queue":     {Filter{Queue: "w"}, false},
		"died before":     {Filter{DiedBefore: 5000}, true},
		"died later":      {Filter{DiedBefore: 4999}, false},
		"died after":      {Filter{DiedAfter: 5000}, true},
		"died too early":  {Filter{DiedAfter: 5001}, false},
		"number":          {Filter{IDs: []uint64{3, 9}}, true},
		"other number":    {Filter{IDs: []uint64{3, 10}}, false},
		"message id":      {Filter{MessageIDs: []string{"m0", "m1"}}, true},
		"other id":        {Filter{MessageIDs: []string{"m0"}}, false},
		"header":          {Filter{Header: "tenant", HeaderValue: "blue"}, true},
		"header number":   {Filter{Header: "n", HeaderValue: "7"}, true},
		"header bytes":    {Filter{Header: "raw", HeaderValue: "b"}, true},
		"other value":     {Filter{Header: "tenant", HeaderValue: "red"}, false},
		"no such header":  {Filter{Header: "none"}, false},
		"all of it":       {Filter{Reasons: []Reason{Expired}, Queue: "q", IDs: []uint64{9}, Header: "n", HeaderValue: "7"}, true},
		"all but one":     {Filter{Reasons: []Reason{Expired}, Queue: "q", IDs: []uint64{9}, Header: "n", HeaderValue: "8"}, false},
		"retried":         {Filter{Retried: OnlyRetried}, true},
		"never retried":   {Filter{Retried: NeverRetried}, false},
		"never died":      {Filter{Queue: "q"}, true},
		"without a death": {Filter{IDs: []uint64{9}}, true},
	} {
		if got := tc.f.Takes(9, deaths, props); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !(&Filter{Retried: NeverRetried}).Takes(9, deaths[:1], nil) || (&Filter{Retried: OnlyRetried}).Takes(9, nil, nil) || !(&Filter{Retried: NeverRetried}).NeedsContent() {
		t.Error("a message that nobody has sent back")
	}
	if (&Filter{DiedBefore: 1}).Takes(9, nil, nil) || !(&Filter{}).Takes(9, nil, nil) {
		t.Error("a message that never died")
	}
	if (&Filter{MessageIDs: []string{""}}).Takes(9, nil, []byte{1}) {
		t.Error("properties that do not decode")
	}
	for _, f := range []Filter{{IDs: []uint64{2, 1}}, {IDs: make([]uint64, 1001)}, {Header: strings.Repeat("x", 1025)}, {Retried: 3}} {
		if f.Validate() == nil {
			t.Error("a filter that is out of bounds is valid")
		}
	}
	for _, r := range []Reason{Rejected, Expired, MaxLen, DeliveryLimit} {
		if got, ok := ParseReason(r.String()); got != r || !ok {
			t.Errorf("%v read as %v", r, got)
		}
	}
	if _, ok := ParseReason("transaction"); ok {
		t.Error("transaction is no death")
	}
}

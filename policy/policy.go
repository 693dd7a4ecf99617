package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// ApplyTo says what sorts of objects a policy is for.
type ApplyTo uint8

// The values of apply-to. The numbers are stored.
const (
	All           ApplyTo = 1
	Exchanges     ApplyTo = 2
	Queues        ApplyTo = 3
	ClassicQueues ApplyTo = 4
	QuorumQueues  ApplyTo = 5
	Streams       ApplyTo = 6
)

var applyToWords = map[ApplyTo]string{
	All: "all", Exchanges: "exchanges", Queues: "queues", ClassicQueues: "classic_queues", QuorumQueues: "quorum_queues", Streams: "streams",
}

// String is RabbitMQ's word.
func (a ApplyTo) String() string { return applyToWords[a] }

// ParseApplyTo reads RabbitMQ's word. What is none is returned as 0, which [New] refuses.
func ParseApplyTo(word string) ApplyTo {
	for a, w := range applyToWords {
		if w == word {
			return a
		}
	}
	return 0
}

func (a ApplyTo) covers(t Target) bool {
	switch a {
	case All:
		return true
	case Exchanges:
		return t == Exchange
	case Queues:
		return t != Exchange
	case ClassicQueues:
		return t == ClassicQueue
	case QuorumQueues:
		return t == QuorumQueue
	case Streams:
		return t == Stream
	}
	return false
}

// NameBytesMax bounds the name of a policy.
const NameBytesMax = 255

// Spec is a policy as an operator gives it.
type Spec struct {
	VHost, Name string
	Operator    bool   // an operator policy
	Pattern     string // of the names that it applies to, anywhere in them
	ApplyTo     ApplyTo
	Priority    int64
	// Definition has int64, float64, string and bool values; [New] sorts it by key.
	Definition amqp.Table
}

// Policy is a valid policy. It is immutable.
type Policy struct {
	Spec
	pattern pattern
	hides   targets
}

// Invalid is why a policy is refused, in RabbitMQ's words.
type Invalid struct{ Reasons []string }

// Error is the text that RabbitMQ's tools show.
func (e *Invalid) Error() string {
	return "Validation failed\n\n" + strings.Join(e.Reasons, "\n") + "\n"
}

// New checks a policy. The error is an [*Invalid].
func New(s Spec) (*Policy, error) {
	var wrong []string
	refuse := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	switch {
	case s.Name == "":
		refuse("name of a policy must not be empty")
	case len(s.Name) > NameBytesMax:
		refuse("name of a policy has %d bytes, the maximum is %d", len(s.Name), NameBytesMax)
	}
	p := &Policy{Spec: s}
	var err error
	if p.pattern, err = compile(s.Pattern); err != nil {
		refuse("pattern should be regular expression but is invalid: %v", err)
	}
	if applyToWords[s.ApplyTo] == "" {
		refuse("apply-to unrecognised; should be 'queues', 'classic_queues', 'quorum_queues', 'streams', 'exchanges', or 'all'")
	}
	if reason := checkDefinition(s.Definition, s.Operator); reason != "" {
		refuse("%s", reason)
	}
	if len(wrong) > 0 {
		return nil, &Invalid{wrong}
	}
	p.Definition = slices.Clone(s.Definition)
	slices.SortFunc(p.Definition, func(a, b amqp.Field) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range p.Definition {
		p.hides |= keyOf(f.Name).hides
	}
	return p, nil
}

// checkDefinition returns what is wrong with a definition, "" for nothing.
func checkDefinition(t amqp.Table, operator bool) string {
	if len(t) == 0 {
		return "no policy provided"
	}
	var unknown []string
	for i, f := range t {
		if k := keyOf(f.Name); k == nil || operator && !k.operator {
			unknown = append(unknown, fmt.Sprintf("{%s,%s}", erlang(f.Name), erlang(f.Value)))
		}
		if slices.ContainsFunc(t[:i], func(o amqp.Field) bool { return o.Name == f.Name }) {
			return fmt.Sprintf("[%s] duplicate keys not allowed", erlang(f.Name))
		}
	}
	if len(unknown) > 0 {
		return fmt.Sprintf("[%s] are not recognised policy settings", strings.Join(unknown, ","))
	}
	for _, f := range t {
		if k := keyOf(f.Name); !k.check(f.Value) {
			return fmt.Sprintf("%s is not a valid %s", erlang(f.Value), k.what)
		}
	}
	return checkTogether(t, operator)
}

// checkTogether looks at keys that need each other.
func checkTogether(t amqp.Table, operator bool) string {
	kind, ok := t.Get("delayed-retry-type")
	low, hasLow := t.Get("delayed-retry-min")
	high, hasHigh := t.Get("delayed-retry-max")
	switch {
	case hasLow && hasHigh && less(high, low):
		return "delayed-retry-max must not be less than delayed-retry-min"
	case ok && kind != "disabled" && !operator && (!hasLow || !less(int64(0), low)):
		return "delayed-retry-type needs delayed-retry-min"
	}
	return ""
}

// Matches reports whether the policy is for an object of that sort and name.
func (p *Policy) Matches(t Target, name string) bool {
	return p.ApplyTo.covers(t) && !p.hides.has(t) && p.pattern.match(name)
}

// Equal reports whether two policies say the same.
func (p *Policy) Equal(o *Policy) bool {
	return p.VHost == o.VHost && p.Name == o.Name && p.Operator == o.Operator && p.Pattern == o.Pattern && p.ApplyTo == o.ApplyTo &&
		p.Priority == o.Priority && slices.EqualFunc(p.Definition, o.Definition, func(a, b amqp.Field) bool { return a.Name == b.Name && a.Value == b.Value })
}

// erlang writes a value as RabbitMQ's refusals show it.
func erlang(v any) string {
	switch v := v.(type) {
	case string:
		return "<<" + strconv.Quote(v) + ">>"
	case nil:
		return "null"
	case amqp.Array:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = erlang(v[i])
		}
		return "[" + strings.Join(parts, ",") + "]"
	case amqp.Table:
		parts := make([]string, len(v))
		for i, f := range v {
			parts[i] = erlang(f.Name) + " => " + erlang(f.Value)
		}
		return "#{" + strings.Join(parts, ",") + "}"
	}
	return fmt.Sprint(v)
}

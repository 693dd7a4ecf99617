package policy

import (
	"errors"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
)

func definition(t testing.TB, raw string) amqp.Table {
	t.Helper()
	d, err := ParseDefinition([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func policyOf(t testing.TB, pattern, raw string) *Policy {
	t.Helper()
	p, err := New(Spec{VHost: "/", Name: "p", Pattern: pattern, ApplyTo: All, Definition: definition(t, raw)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestDefinitions has every key with values in and out of range (G04).
func TestDefinitions(t *testing.T) {
	for _, tc := range []struct {
		raw, policy, operator string // part of the refusal; "" is taken
	}{
		{`{"alternate-exchange":"ae"}`, "", "[{<<\"alternate-exchange\">>,<<\"ae\">>}] are not recognised policy settings"},
		{`{"alternate-exchange":5}`, "5 is not a valid alternate exchange name", "not recognised"},
		{`{"dead-letter-exchange":""}`, "", "not recognised"},
		{`{"dead-letter-exchange":true}`, "true is not a valid dead letter exchange name", "not recognised"},
		{`{"dead-letter-routing-key":"k"}`, "", "not recognised"},
		{`{"dead-letter-routing-key":"` + strings.Repeat("k", 256) + `"}`, "is not a valid dead letter routing key", "not recognised"},
		{`{"dead-letter-strategy":"at-least-once"}`, "", "not recognised"},
		{`{"dead-letter-strategy":"maybe"}`, "<<\"maybe\">> is not a valid dead letter strategy", "not recognised"},
		{`{"message-ttl":0}`, "", ""},
		{`{"message-ttl":-1}`, "-1 is not a valid message TTL", "-1 is not a valid message TTL"},
		{`{"message-ttl":315360000001}`, "is not a valid message TTL", "is not a valid message TTL"},
		{`{"message-ttl":1.5}`, "1.5 is not a valid message TTL", "is not a valid message TTL"},
		{`{"message-ttl":"60000"}`, "<<\"60000\">> is not a valid message TTL", "is not a valid message TTL"},
		{`{"message-ttl":[1]}`, "[1] is not a valid message TTL", "is not a valid message TTL"},
		{`{"message-ttl":null}`, "null is not a valid message TTL", "is not a valid message TTL"},
		{`{"expires":1}`, "", ""},
		{`{"expires":0}`, "0 is not a valid queue expiry", "0 is not a valid queue expiry"},
		{`{"max-length":0}`, "", ""},
		{`{"max-length":-1}`, "-1 is not a valid maximum length", "is not a valid maximum length"},
		{`{"max-length":99999999999999999999999}`, "is not a valid maximum length", "is not a valid maximum length"},
		{`{"max-length-bytes":0}`, "", ""},
		{`{"max-length-bytes":-5}`, "-5 is not a valid maximum length in bytes", "is not a valid maximum length in bytes"},
		{`{"overflow":"reject-publish"}`, "", ""},
		{`{"overflow":"drop-tail"}`, "<<\"drop-tail\">> is not a valid overflow", "is not a valid overflow"},
		{`{"delivery-limit":-1}`, "", ""},
		{`{"delivery-limit":"5"}`, "<<\"5\">> is not a valid delivery limit", "is not a valid delivery limit"},
		{`{"consumer-timeout":1000}`, "", "not recognised"},
		{`{"consumer-timeout":-1}`, "-1 is not a valid consumer timeout", "not recognised"},
		{`{"delayed-retry-type":"all","delayed-retry-min":5}`, "", ""},
		{`{"delayed-retry-type":"all"}`, "delayed-retry-type needs delayed-retry-min", ""},
		{`{"delayed-retry-type":"all","delayed-retry-min":0}`, "delayed-retry-type needs delayed-retry-min", ""},
		{`{"delayed-retry-type":"disabled"}`, "", ""},
		{`{"delayed-retry-type":"often","delayed-retry-min":5}`, "<<\"often\">> is not a valid delayed retry type", "is not a valid"},
		{`{"delayed-retry-min":5,"delayed-retry-max":4}`, "delayed-retry-max must not be less", "delayed-retry-max must not be less"},
		{`{"delayed-retry-multiplier":1.5}`, "", ""},
		{`{"delayed-retry-multiplier":0.5}`, "0.5 is not a valid delayed retry multiplier", "is not a valid"},
		{`{"delayed-retry-jitter":101}`, "101 is not a valid delayed retry jitter", "is not a valid"},
		{`{"queue-leader-locator":"balanced"}`, "", "not recognised"},
		{`{"queue-leader-locator":"far"}`, "is not a valid queue leader locator value", "not recognised"},
		{`{"queue-mode":"lazy"}`, "", "not recognised"},
		{`{"queue-version":3}`, "3 is not a valid queue version", "is not a valid"},
		{`{"target-group-size":0}`, "0 is not a valid target group size", "is not a valid"},
		{`{"max-age":"1D"}`, "", "not recognised"},
		{`{"max-age":"1 day"}`, "is not a valid max age", "not recognised"},
		{`{"stream-filter-size-bytes":15}`, "15 is not a valid stream filter size", "not recognised"},
		{`{"max-priority":5}`, "[{<<\"max-priority\">>,5}] are not recognised policy settings", "not recognised"},
		{`{"b":{"x":1},"a":["y",false]}`, "[{<<\"a\">>,[<<\"y\">>,false]},{<<\"b\">>,#{<<\"x\">> => 1}}] are not recognised", "not recognised"},
		{`{}`, "no policy provided", "no policy provided"},
	} {
		for _, operator := range []bool{false, true} {
			want := tc.policy
			if operator {
				want = tc.operator
			}
			_, err := New(Spec{Name: "p", ApplyTo: All, Definition: definition(t, tc.raw), Operator: operator})
			var invalid *Invalid
			switch {
			case want == "" && err == nil:
			case want == "" || err == nil:
				t.Errorf("%s, operator %v: %v, want %q", tc.raw, operator, err, want)
			case !errors.As(err, &invalid) || !strings.HasPrefix(err.Error(), "Validation failed\n\n") || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "\n"):
				t.Errorf("%s, operator %v: %q, want %q", tc.raw, operator, err, want)
			}
		}
	}
}

func TestBadSpecs(t *testing.T) {
	good := definition(t, `{"message-ttl":1}`)
	for want, s := range map[string]Spec{
		"name of a policy must not be empty":          {ApplyTo: All, Definition: good},
		"name of a policy has 256 bytes":              {Name: strings.Repeat("n", 256), ApplyTo: All, Definition: good},
		"apply-to unrecognised":                       {Name: "n", ApplyTo: ParseApplyTo("topics"), Definition: good},
		"apply-to unrecognised; should":               {Name: "n", ApplyTo: ParseApplyTo(""), Definition: good},
		"pattern should be regular expression":        {Name: "n", ApplyTo: All, Pattern: "[", Definition: good},
		"pattern should be regular expression but is": {Name: "n", ApplyTo: All, Pattern: "a(?=b)", Definition: good},
		"it has 4097 bytes":                           {Name: "n", ApplyTo: All, Pattern: strings.Repeat("a", PatternBytesMax+1), Definition: good},
		"it repeats too much":                         {Name: "n", ApplyTo: All, Pattern: strings.Repeat(".{1000}", 20), Definition: good},
		"duplicate keys not allowed":                  {Name: "n", ApplyTo: All, Definition: append(good, good...)},
	} {
		if _, err := New(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, raw := range []string{"", "{", `{"a":1} {}`, "nonsense", `[]`, `5`, `"x"`, "null"} {
		if d, err := ParseDefinition([]byte(raw)); err == nil {
			t.Errorf("%q gives %v", raw, d)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, tc := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "anything", true},
		{".*", "", true},
		{"ord", "my-orders", true}, // not anchored
		{"^ord", "my-orders", false},
		{"^(?!amq\\.).*", "amq.gen-1", false},
		{"^(?!amq\\.).*", "amqp", true},
		{"^(?!amq\\.)orders", "orders", true},
		{"^(?!amq\\.)orders", "my-orders", false},
		{"^(?!amq\\.)", "a", true},
		{"^(?!(a|b)[)]).", "a)", false},
		{"^(?!(a|b)[)]).", "a(", true},
		{"^(?!a)(b|c)$", "b", true},
		{"^(?!a)(b|c)$", "d", false},
		{"^(?!a\\))b", "b", true},
		{"^(?!a)[|]b", "|b", true},
	} {
		p, err := compile(tc.pattern)
		if err != nil {
			t.Errorf("%q: %v", tc.pattern, err)
		} else if got := p.match(tc.name); got != tc.want {
			t.Errorf("%q matches %q: %v", tc.pattern, tc.name, got)
		}
	}
	// What look-ahead means here would not be what PCRE makes of it.
	for _, bad := range []string{"^(?!a)b|c", "^(?!a", "a(?!b)", "(?!a)", "^(?!(?!a))b"} {
		if _, err := compile(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestPatternCost matches the longest name with the costliest patterns that are taken.
func TestPatternCost(t *testing.T) {
	name := strings.Repeat("a", 255)
	for _, text := range []string{"(a*)*b", "(.*a){8}x", ".{1000}.{1000}.{1000}", "((a?){100}){10}b"} {
		p, err := compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		before := processorTime(t)
		p.match(name)
		if took := processorTime(t) - before; took > time.Second {
			t.Errorf("%s took %v", text, took)
		}
	}
}

// processorTime is what this process has used: a machine that others use does not make a pattern costly.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestHidden: a key that a type of queue cannot have hides the whole policy from it (G01).
func TestHidden(t *testing.T) {
	for raw, want := range map[string]string{
		`{"message-ttl":1}`:                           "exchange classic quorum stream",
		`{"delivery-limit":1}`:                        "exchange classic quorum",
		`{"message-ttl":1,"target-group-size":3}`:     "exchange quorum",
		`{"message-ttl":1,"queue-mode":"lazy"}`:       "exchange classic",
		`{"message-ttl":1,"max-age":"1D"}`:            "exchange stream",
		`{"queue-mode":"lazy","target-group-size":3}`: "exchange",
	} {
		p := policyOf(t, "", raw)
		var got []string
		for i, name := range []string{"exchange", "classic", "quorum", "stream"} {
			if p.Matches(Target(i), "q") {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s applies to %v, want %s", raw, got, want)
		}
	}
}

func TestApplyTo(t *testing.T) {
	for word, want := range map[string]string{
		"all": "0123", "exchanges": "0", "queues": "123", "classic_queues": "1", "quorum_queues": "2", "streams": "3",
	} {
		p, err := New(Spec{Name: "p", ApplyTo: ParseApplyTo(word), Definition: definition(t, `{"message-ttl":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for i := range Target(4) {
			if p.Matches(i, "q") {
				got += string('0' + rune(i))
			}
		}
		if got != want || p.ApplyTo.String() != word {
			t.Errorf("%q (%v) applies to %s, want %s", word, p.ApplyTo, got, want)
		}
	}
}

// TestArgumentTable is the table of precedence: an argument, a merged value and what is in
// effect on a classic and on a quorum queue (G02).
func TestArgumentTable(t *testing.T) {
	for _, tc := range []struct {
		key             string
		arg, policy     any
		classic, quorum any
	}{
		{"dead-letter-exchange", "a", "p", "a", "a"},
		{"dead-letter-routing-key", "a", "p", "a", "a"},
		{"dead-letter-strategy", "at-most-once", "at-least-once", "at-most-once", "at-most-once"},
		{"message-ttl", int32(10), int64(5), int64(5), int64(5)},
		{"message-ttl", int32(5), int64(10), int32(5), int32(5)},
		{"expires", int64(10), int64(5), int64(5), int64(5)},
		{"max-length", uint8(10), int64(5), int64(5), int64(5)},
		{"max-length-bytes", int64(5), int64(10), int64(5), int64(5)},
		{"overflow", "drop-head", "reject-publish", "drop-head", "reject-publish"},
		{"delivery-limit", int64(10), int64(5), int64(5), int64(5)},
		{"delivery-limit", int64(-1), int64(5), int64(5), int64(5)},
		{"delivery-limit", int64(10), int64(-1), int64(10), int64(10)},
		{"delivery-limit", int64(-5), int64(-1), int64(-1), int64(-1)},
		{"delayed-retry-type", "failed", "all", "all", "all"},
		{"delayed-retry-min", int64(10), int64(5), int64(5), int64(5)},
		{"delayed-retry-max", int64(5), int64(10), int64(5), int64(5)},
		{"delayed-retry-multiplier", float64(2), int64(3), float64(2), float64(2)},
		{"consumer-timeout", int64(10), int64(5), int64(5), int64(5)},
		{"consumer-timeout", int64(0), int64(5), int64(5), int64(5)},
		{"consumer-timeout", int64(7), int64(0), int64(7), int64(7)},
		{"queue-leader-locator", "balanced", "client-local", "balanced", "balanced"},
		{"message-ttl", nil, int64(10), int64(10), int64(10)},
		{"overflow", nil, "reject-publish", "reject-publish", "reject-publish"},
		{"alternate-exchange", nil, "ae", nil, nil},
		{"queue-mode", nil, "lazy", nil, nil},
	} {
		var args amqp.Table
		if tc.arg != nil {
			args = amqp.Table{{Name: "x-" + tc.key, Value: tc.arg}}
		}
		merged := amqp.Table{{Name: tc.key, Value: tc.policy}}
		for quorum, want := range map[bool]any{false: tc.classic, true: tc.quorum} {
			if got, _ := Arguments(args, quorum, merged).Get("x-" + tc.key); got != want {
				t.Errorf("%s: argument %v and policy %v give %v on a quorum queue (%v), want %v", tc.key, tc.arg, tc.policy, got, quorum, want)
			}
		}
		if len(args) > 0 && args[0].Value != tc.arg {
			t.Error("the arguments were changed")
		}
	}
}

func TestMergeTable(t *testing.T) {
	for _, tc := range []struct{ policy, operator, want string }{
		{`{"max-length":5}`, `{"max-length":3}`, `{"max-length":3}`},
		{`{"max-length":3}`, `{"max-length":5}`, `{"max-length":3}`},
		{`{"expires":3,"message-ttl":9,"max-length-bytes":1}`, `{"expires":5,"message-ttl":8}`, `{"expires":3,"max-length-bytes":1,"message-ttl":8}`},
		{`{"delivery-limit":3}`, `{"delivery-limit":-1}`, `{"delivery-limit":3}`},
		{`{"delivery-limit":-1}`, `{"delivery-limit":7}`, `{"delivery-limit":7}`},
		{`{"overflow":"reject-publish"}`, `{"overflow":"drop-head"}`, `{"overflow":"drop-head"}`},
		{`{"target-group-size":3}`, `{"target-group-size":5}`, `{"target-group-size":5}`},
		{`{"queue-version":1}`, `{"queue-version":2}`, `{"queue-version":2}`},
		{`{"delayed-retry-type":"all","delayed-retry-min":9}`, `{"delayed-retry-type":"disabled","delayed-retry-min":5}`, `{"delayed-retry-min":5,"delayed-retry-type":"disabled"}`},
	} {
		op, err := New(Spec{Name: "o", Operator: true, ApplyTo: Queues, Definition: definition(t, tc.operator)})
		if err != nil {
			t.Fatal(err)
		}
		p := policyOf(t, "", tc.policy)
		want := definition(t, tc.want)
		if got := Merge(p, op); !same(got, want) {
			t.Errorf("%s and %s give %v, want %v", tc.policy, tc.operator, got, want)
		}
		if got := Merge(p, nil); !same(got, p.Definition) {
			t.Errorf("without an operator policy: %v", got)
		}
		if got := Merge(nil, op); !same(got, op.Definition) {
			t.Errorf("without a policy: %v", got)
		}
	}
	if Merge(nil, nil) != nil {
		t.Error("nothing is something")
	}
}

func same(a, b amqp.Table) bool {
	x, y := Policy{Spec: Spec{Definition: a}}, Policy{Spec: Spec{Definition: b}}
	return x.Equal(&y)
}

// TestKeysAreWhole looks for keys that lack a part.
func TestKeysAreWhole(t *testing.T) {
	name := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	seen := map[string]bool{}
	for _, k := range keys {
		if seen[k.name] || !name.MatchString(k.name) || k.what == "" || k.check == nil || k.operator != (k.merge != nil) || k.idle && k.argument {
			t.Errorf("key %+v", k)
		}
		seen[k.name] = true
	}
	if Idle("message-ttl") || !Idle("queue-mode") || Idle("nonsense") {
		t.Error("Idle is wrong")
	}
}

package grpc

import (
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	wire "github.com/warrenmq/warren/amqp"
	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/policy"
)

func definition(fields map[string]*warrenv1.Value) *warrenv1.Table {
	return &warrenv1.Table{Fields: fields}
}

// TestPolicies: integers of all sizes are the same, and what is no policy is refused.
func TestPolicies(t *testing.T) {
	for _, v := range []*warrenv1.Value{
		{Kind: &warrenv1.Value_Int8Value{Int8Value: 5}},
		{Kind: &warrenv1.Value_Uint8Value{Uint8Value: 5}},
		{Kind: &warrenv1.Value_Int16Value{Int16Value: 5}},
		{Kind: &warrenv1.Value_Uint16Value{Uint16Value: 5}},
		{Kind: &warrenv1.Value_Int32Value{Int32Value: 5}},
		{Kind: &warrenv1.Value_Uint32Value{Uint32Value: 5}},
		{Kind: &warrenv1.Value_Int64Value{Int64Value: 5}},
	} {
		p, err := policyOf(&warrenv1.Policy{Name: "p", Pattern: "^a", Definition: definition(map[string]*warrenv1.Value{"max-length": v})})
		if err != nil || p.VHost != "/" || p.ApplyTo != policy.All || !p.Definition.Equal(wire.Table{{Name: "max-length", Value: int64(5)}}) {
			t.Errorf("%v: %v, %v", v, p, err)
		}
	}
	five := &warrenv1.Value{Kind: &warrenv1.Value_Int64Value{Int64Value: 5}}
	good := definition(map[string]*warrenv1.Value{"max-length": five})
	of := func(key string, v *warrenv1.Value) *warrenv1.Policy {
		return &warrenv1.Policy{Name: "p", Definition: definition(map[string]*warrenv1.Value{key: v})}
	}
	for name, p := range map[string]*warrenv1.Policy{
		"nothing":       nil,
		"no name":       {Definition: good},
		"long name":     {Name: strings.Repeat("n", 256), Definition: good},
		"long vhost":    {Name: "p", Vhost: strings.Repeat("v", 256), Definition: good},
		"no definition": {Name: "p"},
		"pattern":       {Name: "p", Pattern: "(", Definition: good},
		"target":        {Name: "p", ApplyTo: 7, Definition: good},
		"no target":     {Name: "p", ApplyTo: -1, Definition: good},
		"key":           of("no-such-key", five),
		"operator's":    {Name: "p", Operator: true, Definition: definition(map[string]*warrenv1.Value{"dead-letter-exchange": {Kind: &warrenv1.Value_StringValue{StringValue: "x"}}})},
		"value":         of("max-length", &warrenv1.Value{Kind: &warrenv1.Value_StringValue{StringValue: "5"}}),
		"void":          of("max-length", &warrenv1.Value{}),
		"bytes":         of("dead-letter-exchange", &warrenv1.Value{Kind: &warrenv1.Value_BytesValue{BytesValue: []byte("x")}}),
		"no utf-8":      of("dead-letter-exchange", &warrenv1.Value{Kind: &warrenv1.Value_BinaryStringValue{BinaryStringValue: []byte{255}}}),
		"not a number":  of("delayed-retry-multiplier", &warrenv1.Value{Kind: &warrenv1.Value_DoubleValue{DoubleValue: math.NaN()}}),
	} {
		_, err := policyOf(p)
		wantInvalid(t, name, err)
	}
	for i, a := range policyTargets[1:] {
		if n := targetOf(a); int(n) != i+1 || !strings.EqualFold(n.String(), "policy_target_"+a.String()) {
			t.Errorf("%v is number %v", a, n)
		}
	}
}

// FuzzPolicy: whatever a client sends is refused, or a policy that the catalog takes.
func FuzzPolicy(f *testing.F) {
	b, _ := proto.Marshal(&warrenv1.Policy{Name: "p", Pattern: "^a", ApplyTo: 3, Definition: definition(map[string]*warrenv1.Value{
		"max-length": {Kind: &warrenv1.Value_Int8Value{Int8Value: 5}}, "overflow": {Kind: &warrenv1.Value_StringValue{StringValue: "drop-head"}},
	})})
	f.Add(b, "")
	f.Fuzz(func(t *testing.T, b []byte, token string) {
		p := &warrenv1.Policy{}
		if proto.Unmarshal(b, p) == nil {
			if spec, err := policyOf(p); err != nil {
				wantInvalid(t, "policy", err)
			} else if made, err := policy.New(spec); err != nil {
				t.Fatal(err)
			} else if _, err := proto.Marshal(tableFor(made.Definition)); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := page([]string{"a"}, 1, token, keyOfItself); err != nil {
			wantInvalid(t, "token", err)
		}
	})
}

func keyOfItself(s string) string { return s }

// TestPages: the pages of a list are the list in order, and what goes meanwhile moves nothing else.
func TestPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfDistinct(rapid.StringN(0, 5, 20), rapid.ID).Draw(t, "list")
		want, got := slices.Sorted(slices.Values(list)), []string{}
		size := rapid.Uint32Range(0, 5).Draw(t, "size")
		for token := ""; ; {
			cut, next, err := page(list, size, token, keyOfItself)
			if err != nil || size > 0 && len(cut) > int(size) {
				t.Fatal(cut, err)
			}
			got = append(got, cut...)
			if token = next; next == "" {
				break
			}
			if len(got) > 0 && rapid.Bool().Draw(t, "goes") { // one that was on a page
				list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == got[0] })
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
	_, _, err := page([]string{"a"}, pageMax+1, "", keyOfItself)
	wantInvalid(t, "size", err)
	_, _, err = page([]string{"a"}, 1, "!", keyOfItself)
	wantInvalid(t, "token", err)
	many := make([]int, pageMax+1)
	for i := range many {
		many[i] = i
	}
	if cut, next, err := page(many, 0, "", func(n int) string { return string(rune(n + 'a')) }); len(cut) != pageMax || next == "" || err != nil {
		t.Error(len(cut), next, err)
	}
}

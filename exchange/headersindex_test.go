package exchange

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/amqp"
)

// TestHeadersIndexAgrees compares what the index finds with a look at each binding.
func TestHeadersIndexAgrees(t *testing.T) {
	value := rapid.SampledFrom([]any{
		nil, "", "a", "b", int8(1), int64(1), uint16(2), int32(-1), true, false, 1.5, float32(1.5), float32(1), []byte("a"), amqp.Timestamp(1), amqp.Array{"a"}, amqp.Table{},
	})
	field := rapid.Custom(func(t *rapid.T) amqp.Field {
		return amqp.Field{Name: rapid.SampledFrom([]string{"k", "l", "m", "x-n"}).Draw(t, "name"), Value: value.Draw(t, "value")}
	})
	rapid.Check(t, func(t *rapid.T) {
		tab := New(Headers, nil)
		var bindings []Binding
		met := map[string]bool{}
		for i := range rapid.IntRange(0, 3*indexFrom).Draw(t, "bindings") {
			args := amqp.Table(rapid.SliceOfN(field, 0, 4).Draw(t, "args"))
			if m := rapid.SampledFrom([]string{"", "all", "any", "all-with-x", "any-with-x"}).Draw(t, "x-match"); m != "" {
				args = append(args, amqp.Field{Name: "x-match", Value: m})
			}
			b := Binding{Destination: q(fmt.Sprint("q", i)), Arguments: args}
			if key := string(headersKey(b)); !met[key] {
				met[key] = true
				bindings = append(bindings, b)
				tab = tab.Add(b)
			}
		}
		headers := amqp.Table(rapid.SliceOfN(field, 0, 6).Draw(t, "headers"))
		var want []Destination
		for _, b := range bindings {
			want = New(Headers, nil).Add(b).Match(want, "", headers)
		}
		byName := func(a, b Destination) int { return strings.Compare(a.Name, b.Name) }
		slices.SortFunc(want, byName)
		for i := range indexAfter + 1 {
			got := tab.Match(nil, "", headers)
			slices.SortFunc(got, byName)
			if !slices.Equal(got, want) {
				t.Fatalf("look %d: %v matched %v, want %v", i, headers, got, want)
			}
		}
	})
}

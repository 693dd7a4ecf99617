package tags

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The list behaves like a map of what is outstanding, whatever the gaps.
func TestTagList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l List[int]
		model := map[uint64]int{}
		next := uint64(0)
		lowest := func() (uint64, bool) {
			var all []uint64
			for tag := range model {
				all = append(all, tag)
			}
			if len(all) == 0 {
				return 0, false
			}
			return slices.Min(all), true
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					next += uint64(rapid.SampledFrom([]int{1, 1, 1, 1, 2, 50}).Draw(t, "step"))
					l.Push(next, int(next)*3)
					model[next] = int(next) * 3
				}
			},
			"take": func(t *rapid.T) {
				tag := rapid.Uint64Range(0, next+2).Draw(t, "tag")
				v, ok := l.Take(tag)
				if want, have := model[tag]; ok != have || v != want {
					t.Fatalf("take %d: %d %v, want %d %v", tag, v, ok, want, have)
				}
				delete(model, tag)
			},
			"take up to": func(t *rapid.T) {
				tag := rapid.Uint64Range(0, next+2).Draw(t, "tag")
				got := l.TakeUpTo(tag, nil)
				var want []int
				for have, v := range model {
					if have <= tag {
						want = append(want, v)
						delete(model, have)
					}
				}
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("take up to %d: %v, want %v", tag, got, want)
				}
			},
			"take a range": func(t *rapid.T) {
				first, last := rapid.Uint64Range(0, next+2).Draw(t, "first"), rapid.Uint64Range(0, next+2).Draw(t, "last")
				seen := l.Range(first, last, nil)
				got := l.TakeRange(first, last, nil)
				if !slices.Equal(seen, got) {
					t.Fatalf("look at %d to %d: %v, and %v was taken", first, last, seen, got)
				}
				var want []int
				for have, v := range model {
					if first <= have && have <= last {
						want = append(want, v)
						delete(model, have)
					}
				}
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("take %d to %d: %v, want %v", first, last, got, want)
				}
			},
			"": func(t *rapid.T) {
				for tag, v := range l.All() {
					if want, have := model[tag]; !have || v != want {
						t.Fatalf("all: %d of %d, want %d %v", v, tag, want, have)
					}
				}
				tag, ok := l.Lowest()
				if want, have := lowest(); tag != want || ok != have || l.Len() != len(model) {
					t.Fatalf("lowest %d %v of %d, want %d %v of %d", tag, ok, l.Len(), want, have, len(model))
				}
			},
		})
	})
}

// One old tag must not keep the space of all that came after it.
func TestTagListSpace(t *testing.T) {
	var l List[int]
	l.Push(1, 0)
	for tag := uint64(2); tag < 1_000_000; tag++ {
		l.Push(tag, 0)
		if tag > 100 {
			if _, ok := l.Take(tag - 50); !ok {
				t.Fatalf("take %d", tag-50)
			}
		}
	}
	if cap(l.entries) > 2048 {
		t.Errorf("%d live tags keep %d entries", l.Len(), cap(l.entries))
	}
}

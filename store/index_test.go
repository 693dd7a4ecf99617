package store

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestIndex compares the index with a map.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x index
		m := make(map[uint64]loc)
		at := rapid.Uint64Range(1, 3*runMax)
		next := uint64(1)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0: // the usual case: a stretch at the tail
				for range rapid.IntRange(1, runMax).Draw(t, "n") {
					l := loc{1, uint32(next), uint32(next % 97)}
					if old := x.put(next, l); old != m[next] {
						t.Fatalf("put(%d) replaced %v, want %v", next, old, m[next])
					}
					m[next] = l
					next++
				}
			case 1:
				i := at.Draw(t, "i")
				l := loc{2, uint32(i), 5}
				if old := x.put(i, l); old != m[i] {
					t.Fatalf("put(%d) replaced %v, want %v", i, old, m[i])
				}
				m[i] = l
				next = max(next, i+1)
			default:
				from := at.Draw(t, "from")
				to := from + rapid.Uint64Range(0, 2*runMax).Draw(t, "len")
				x.remove(from, to, func(i uint64, l loc) {
					if m[i] != l || i < from || i > to {
						t.Fatalf("removed %d at %v, want %v", i, l, m[i])
					}
					delete(m, i)
				})
			}
			checkIndex(t, &x, m, at.Draw(t, "from"), at.Draw(t, "to"))
		}
	})
}

func checkIndex(t *rapid.T, x *index, m map[uint64]loc, from, to uint64) {
	keys := slices.Sorted(maps.Keys(m))
	var got []uint64
	x.each(0, ^uint64(0), func(i uint64, l loc) bool {
		if m[i] != l {
			t.Fatalf("%d is %v, want %v", i, l, m[i])
		}
		got = append(got, i)
		return true
	})
	if !slices.Equal(got, keys) || x.n != len(keys) {
		t.Fatalf("holds %d (n=%d), want %d", len(got), x.n, len(keys))
	}
	var n, bytes uint64
	ceil := uint64(0)
	for _, i := range keys {
		if i >= from && i <= to {
			n, bytes = n+1, bytes+uint64(m[i].bodyBytes)
		}
		if i >= from && ceil == 0 {
			ceil = i
		}
	}
	if gn, gb := x.sum(from, to); gn != n || gb != bytes {
		t.Fatalf("sum(%d, %d) = %d, %d, want %d, %d", from, to, gn, gb, n, bytes)
	}
	if c, _ := x.ceil(from); c != ceil {
		t.Fatalf("ceil(%d) = %d, want %d", from, c, ceil)
	}
	if l, ok := x.get(from); l != m[from] || ok != (l.segment != 0) {
		t.Fatalf("get(%d) = %v, %v", from, l, ok)
	}
	if top, ok := x.max(); ok != (len(keys) > 0) || ok && top != keys[len(keys)-1] {
		t.Fatalf("max %d, %v", top, ok)
	}
}

func TestRanges(t *testing.T) {
	for name, c := range map[string]struct {
		in, out []Range
		bad     bool
	}{
		"empty":       {},
		"sorts":       {in: []Range{{5, 6}, {1, 2}}, out: []Range{{1, 2}, {5, 6}}},
		"joins":       {in: []Range{{1, 2}, {3, 4}, {4, 9}, {5, 6}}, out: []Range{{1, 9}}},
		"zero":        {in: []Range{{0, 2}}, bad: true},
		"upside down": {in: []Range{{3, 2}}, bad: true},
		"no end":      {in: []Range{{3, ^uint64(0)}}, bad: true},
	} {
		out, ok := normalize(c.in)
		if ok == c.bad || !slices.Equal(out, c.out) {
			t.Errorf("%s: normalize(%v) = %v, %v", name, c.in, out, ok)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var in []Range
		for range rapid.IntRange(0, 5).Draw(t, "ranges") {
			f := rapid.Uint64Range(1, 30).Draw(t, "first")
			in = append(in, Range{f, f + rapid.Uint64Range(0, 6).Draw(t, "len")})
		}
		rs, _ := normalize(in)
		from := rapid.Uint64Range(0, 40).Draw(t, "from")
		to := from + rapid.Uint64Range(0, 10).Draw(t, "span")
		left := make(map[uint64]bool)
		gaps(rs, from, to, func(a, b uint64) {
			for i := a; i <= b; i++ {
				left[i] = true
			}
		})
		for i := range uint64(60) {
			want := i >= from && i <= to && !contains(rs, i)
			if left[i] != want {
				t.Fatalf("gaps(%v, %d, %d): %d is %v", rs, from, to, i, left[i])
			}
		}
	})
}

package queue

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestDedupWindow compares a window with a list, and views of it that were frozen before
// with what it was.
func TestDedupWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w DedupWindow
		var list []DedupEntry // without those at the front whose time is over
		var frozen DedupFrozen
		var was []DedupEntry
		now := int64(1)
		for range rapid.IntRange(1, 3000).Draw(t, "steps") {
			now += int64(rapid.IntRange(0, 3).Draw(t, "time"))
			for len(list) > 0 && list[0].Until <= now {
				list = list[1:]
			}
			switch n := rapid.IntRange(0, 99).Draw(t, "step"); {
			case n < 2:
				frozen = w.Freeze()
				was = slices.Collect(frozen.All)
			case n < 6:
				w.Expire(now, n)
			case n == 6:
				keep := rapid.IntRange(0, 700).Draw(t, "keep")
				cut := max(0, len(list)-keep)
				early := uint64(0)
				for _, e := range list[:cut] {
					if e.Until > now {
						early++
					}
				}
				if got := w.Trim(keep, now); got != early {
					t.Fatalf("%d trimmed early, want %d", got, early)
				}
				list = list[cut:]
			default:
				id := DedupID{byte(rapid.IntRange(0, 250).Draw(t, "id")), byte(n % 4)}
				has := slices.ContainsFunc(list, func(e DedupEntry) bool { return e.ID == id && e.Until > now })
				if w.Has(id, now) != has {
					t.Fatalf("id %v at %d: %v, want %v", id, now, !has, has)
				}
				if !has {
					e := DedupEntry{id, now + int64(rapid.IntRange(1, 2000).Draw(t, "window"))}
					w.Add(e)
					list = append(list, e)
				}
			}
			if over := w.Len() - len(list); over < 0 {
				t.Fatalf("%d entries, want %d or more", w.Len(), len(list))
			}
		}
		all := slices.Collect(w.Freeze().All)
		if len(all) != w.Len() || !slices.Equal(all[len(all)-len(list):], list) {
			t.Fatalf("entries %v, want %v", all, list)
		}
		if !slices.Equal(slices.Collect(frozen.All), was) || len(was) != frozen.Len() {
			t.Fatal("a frozen window has changed")
		}
	})
}

func BenchmarkDedupWindow(b *testing.B) {
	for _, size := range []int{1000, DedupSizeDefault, DedupSizeMax} {
		b.Run("", func(b *testing.B) {
			var w DedupWindow
			n := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				n++
				id := DedupID{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), 1}
				if w.Has(id, int64(n)) {
					b.Fatal("taken")
				}
				w.Trim(size-1, int64(n))
				w.Add(DedupEntry{id, int64(n) + 1<<40})
			}
		})
	}
}

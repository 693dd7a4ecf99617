package unread

import "testing"

// TestGauge: the bound is told once when it is crossed, and once when clearly less is unread again.
func TestGauge(t *testing.T) {
	var told []bool
	u := New(1000, func(on bool) { told = append(told, on) })
	for _, n := range []int{1000, 1, -200, 300, -400, 1} {
		u.Add(n)
	}
	if len(told) != 2 || !told[0] || told[1] {
		t.Errorf("narrow was told %v", told)
	}
}

package level

import "testing"

func TestTable(t *testing.T) {
	names := map[string]bool{}
	for i, l := range table {
		if l.Number != First+i || l.Name == "" || l.Desc == "" || names[l.Name] {
			t.Errorf("level %+v at place %d", l, i)
		}
		names[l.Name] = true
		if Name(l.Number) != l.Name {
			t.Errorf("level %d is called %q, want %q", l.Number, Name(l.Number), l.Name)
		}
		if n, ok := Number(l.Name); ok != (l.Number <= Now) || ok && n != l.Number {
			t.Errorf("%q is level %d, %t", l.Name, n, ok)
		}
	}
	if len(All()) != Now {
		t.Errorf("%d levels, the program knows %d", len(All()), Now)
	}
	for _, n := range []int{-1, 0, len(table) + 1} {
		if want := Name(n); want == "" || names[want] {
			t.Errorf("level %d is called %q", n, want)
		}
	}
}

func TestMust(t *testing.T) {
	Must(Now)
	defer func() {
		if recover() == nil {
			t.Error("something of an unknown level was written")
		}
	}()
	Must(Now + 1)
}

package catalog

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// TestFirstLeaderStays: who leads first is what the replicas were founded with, so that nothing changes it, until a life begins that is founded
// otherwise.
func TestFirstLeaderStays(t *testing.T) {
	s, _ := level2(t)
	q := func() *Queue { return s.view().Queue("/", "led") }
	led := Queue{Vhost: "/", Name: "led", Durable: true, Kind: Replicated, Members: []NodeID{n1, n2}, Preferred: n2, FirstLeader: n2}
	s.ok(&DeclareQueue{Queue: led})
	id := q().ID
	steps := []Command{
		&SetPreferred{id, n1, id}, &PauseQueue{id, true}, &PlanMembers{id, []NodeID{n1, n3}, nil, n3, id, ""},
	}
	for _, c := range steps {
		s.ok(c)
		for _, v := range []*View{s.view(), restored(t, s)} {
			if got := v.Queue("/", "led"); got.FirstLeader != n2 || !slices.Equal(got.FirstMembers(), led.Members) {
				t.Errorf("after %T %q leads first of %v", c, got.FirstLeader, got.FirstMembers())
			}
		}
	}
	s.ok(&MembersReached{id, q().Settings})
	if q().FirstLeader != n2 || slices.Contains(q().Members, n2) {
		t.Errorf("%q leads first, members are %v", q().FirstLeader, q().Members)
	}
	var raw bytes.Buffer
	if err := s.view().WriteSnapshot(&raw); err != nil {
		t.Fatal(err)
	}
	v, err := Rehome(&raw, Rehoming{ClusterID: "other", Nodes: []Rehomed{{"m1/x", ""}}, Place: func(*Queue) ([]NodeID, NodeID) { return []NodeID{"m1/x"}, "m1/x" }})
	if err != nil || v.Queue("/", "led").FirstLeader != "" {
		t.Errorf("in another cluster %+v leads first (%v)", v, err)
	}
	s.ok(&NodeDown{n3, s.view().Node(n3).Incarnation, 1000})
	s.ok(&RecoverQueue{id, []NodeID{n1}, []NodeID{n3}, q().Settings})
	if q().FirstLeader != "" {
		t.Errorf("%q leads the next life first", q().FirstLeader)
	}
}

func TestFirstLeaderIsChecked(t *testing.T) {
	s, _ := level2(t)
	led := Queue{Vhost: "/", Name: "led", Durable: true, Kind: Replicated, Members: []NodeID{n1, n2}, Preferred: n2, FirstLeader: n1}
	s.refused(&DeclareQueue{Queue: led}, "PRECONDITION_FAILED - 'n1/a' cannot lead first")
	led.Kind, led.Members, led.Preferred = Transient, []NodeID{n1}, n1
	s.refused(&DeclareQueue{Queue: led, NodeIncarnation: s.view().Node(n1).Incarnation}, "PRECONDITION_FAILED - 'n1/a' cannot lead first")
	led.Kind = Replicated
	if levelOf(&DeclareQueue{Queue: led}) != 2 {
		t.Error("below level 2 somebody leads first")
	}
}

// TestLateFields: the last fields of a declaration are there up to the last one that is not empty.
func TestLateFields(t *testing.T) {
	for _, q := range []Queue{{}, {Size: 3}, {DeclaredBy: "ann"}, {Size: 3, DeclaredBy: "ann"}, {FirstLeader: n1}, {Size: 3, DeclaredBy: "ann", FirstLeader: n1}} {
		w := &fields{}
		q.late(w)
		var got Queue
		r := &fields{buf: slices.Clone(w.buf), reading: true}
		if got.late(r); r.end() != nil || got.Size != q.Size || got.DeclaredBy != q.DeclaredBy || got.FirstLeader != q.FirstLeader {
			t.Errorf("%x is %+v (%v)", w.buf, got, r.err)
		}
		// What is cut off is malformed, or what has less.
		for n := range w.buf {
			r := &fields{buf: slices.Clone(w.buf[:n]), reading: true}
			var cut Queue
			cut.late(r)
			if err := r.end(); err == nil {
				again := &fields{}
				if cut.late(again); !bytes.Equal(again.buf, w.buf[:n]) {
					t.Errorf("%x is %+v", w.buf[:n], cut)
				}
			} else if !errors.Is(err, ErrMalformed) {
				t.Error(err)
			}
		}
	}
	for _, b := range []string{"\x00", "\x03\x00", "\x00\x03ann\x00", "\x00\x00\x04n1/a\x00"} {
		r := &fields{buf: []byte(b), reading: true}
		var q Queue
		if q.late(r); r.end() == nil {
			t.Errorf("%q is %+v", b, q)
		}
	}
}

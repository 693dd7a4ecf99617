package catalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/exchange"
)

func TestChangesBeyondTheBound(t *testing.T) {
	s := newScript(t)
	start := s.view()
	id := s.ok(declare("q")).ID
	var middle *View
	for i := range 3 * changesMax {
		s.ok(&UpdateMembers{ID: id, Members: []NodeID{n1, n2, n3}, Preferred: n1})
		if i == 3*changesMax-10 {
			middle = s.view()
			s.ok(declare("late"))
		}
	}
	if got := slices.Collect(s.view().QueuesChangedSince(start)); len(got) != 2 {
		t.Errorf("since the start: %v", got)
	}
	if got := slices.Collect(s.view().QueuesChangedSince(middle)); len(got) != 2 {
		t.Errorf("since the middle: %v", got)
	}
	if got := slices.Collect(s.view().QueuesChangedSince(s.view())); len(got) != 0 {
		t.Errorf("since now: %v", got)
	}
	if len(s.view().changes) > changesMax {
		t.Errorf("%d changes are kept", len(s.view().changes))
	}
}

func TestDamagedSnapshots(t *testing.T) {
	s := newScript(t)
	s.ok(declare("q"))
	s.ok(bind("amq.topic", "q", "a.*"))
	s.ok(&RegisterNode{ID: n1})
	raw := snapshotBytes(t, s.m)
	if _, _, err := readSnapshot(bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		if _, _, err := readSnapshot(bytes.NewReader(raw[:i])); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut at %d: %v", i, err)
		}
		bad := bytes.Clone(raw)
		bad[i] ^= 0x10
		if _, _, err := readSnapshot(bytes.NewReader(bad)); err == nil {
			t.Fatalf("flipped a bit at %d: accepted", i)
		}
	}
}

// crashingStore stops writing after a number of writes, as a process that is killed does.
type crashingStore struct {
	*raft.InmemStore
	left int
}

func (s *crashingStore) write(f func() error) error {
	if s.left <= 0 {
		panic("killed")
	}
	s.left--
	return f()
}

func (s *crashingStore) Set(k, v []byte) error {
	return s.write(func() error { return s.InmemStore.Set(k, v) })
}

func (s *crashingStore) SetUint64(k []byte, v uint64) error {
	return s.write(func() error { return s.InmemStore.SetUint64(k, v) })
}

// TestVoteIsOneRecord votes twice as raft does, with a crash after each number of writes: term and
// candidate found afterwards always belong together.
func TestVoteIsOneRecord(t *testing.T) {
	for writes := range 4 {
		disk := &crashingStore{InmemStore: raft.NewInmemStore(), left: writes}
		func() {
			defer func() { _ = recover() }() // the crash
			s := &guardedStore{durable: disk}
			_ = s.SetUint64(keyLastVoteTerm, 5)
			_ = s.Set(keyLastVoteCand, []byte("n1"))
			_ = s.SetUint64(keyLastVoteTerm, 6)
			if got, err := s.GetUint64(keyLastVoteTerm); err != nil || got != 6 {
				t.Errorf("the staged term reads as %d, %v", got, err)
			}
			_ = s.Set(keyLastVoteCand, []byte("n2"))
		}()
		after := &guardedStore{durable: disk}
		term, _ := after.GetUint64(keyLastVoteTerm)
		candidate, _ := after.Get(keyLastVoteCand)
		got := fmt.Sprintf("%d %s", term, candidate)
		if want := []string{"0 ", "5 n1", "6 n2", "6 n2"}[writes]; got != want {
			t.Errorf("after %d writes: %q, want %q", writes, got, want)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, c := range []Command{
		&Found{ClusterID: "c", Admin: auth.User{Name: "u", Tags: []string{"t"}}}, &RegisterNode{ID: n1}, &RemoveNode{ID: n1},
		&PutVhost{Vhost: Vhost{Name: "v"}}, &DeleteVhost{}, &PutUser{auth.User{Name: "u"}}, &DeleteUser{}, &PutPermission{}, &DeletePermission{}, &PutTopicPermission{}, &DeleteTopicPermission{},
		&PutVhostLimits{Vhost: "/", Limits: VhostLimits{Queues: auth.LimitOf(-3)}}, &DeleteVhostLimits{}, &PutUserLimits{User: "guest"}, &DeleteUserLimits{}, &ChangeUser{User: auth.User{Name: "u"}, What: SetTags},
		declareX("x", exchange.Topic, amqp.Field{Name: "a", Value: amqp.Table{{Name: "b", Value: 1.5}}}), &DeleteExchange{},
		bind("x", "q", "k"), &Unbind{}, declare("q"), &DeleteQueue{}, &QueueGone{}, &UpdateMembers{Members: []NodeID{n1}},
		&ActivateLevel{2}, &SetNodeState{ID: n1, State: NodeLeaving}, &SetPreferred{1, n1, 2}, &PlanMembers{1, []NodeID{n1, n2}, []NodeID{n2}, n1, 3, "w"}, &MembersReached{1, 2},
		&NodeDown{n1, 2, 3}, &ForgetNode{n1, 2}, &NodeAbout{n1, 2, "z", "v", 2, []string{"amqp h:1"}},
		&DeclareQueue{Queue: Queue{Size: 3}}, &DeclareExchange{Size: 3},
		&RecoverQueue{1, []NodeID{n1}, []NodeID{n2, n3}, 2}, &QueueRecovered{1, 2, Kept{3, 4, 5, 6}}, &NoteDefinitions{"h"}, &PauseQueue{1, true}, &PutShovel{"v", "s", "u", "{}"}, &DeleteShovel{"v", "s", 1},
	} {
		f.Add(encodeEntry(requestID{1}, c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		id, c, err := decodeEntry(b)
		if err != nil {
			return
		}
		again := encodeEntry(id, c)
		id2, c2, err := decodeEntry(again)
		if err != nil || id2 != id || !bytes.Equal(encodeEntry(id2, c2), again) {
			t.Fatalf("%T does not survive: %v", c, err)
		}
		if c.validate() != nil {
			return
		}
		m := newMachine(func(*applied) {})
		m.apply(1, encodeEntry(requestID{9}, &Found{ClusterID: "c", Admin: auth.User{Name: "guest"}}))
		m.apply(2, b)
		check(t, m.view.Load())
	})
}

func FuzzReadSnapshot(f *testing.F) {
	s := newScript(f)
	s.ok(declare("q"))
	s.ok(bind("amq.headers", "q", "a.*"))
	s.ok(&RegisterNode{ID: n1})
	f.Add(snapshotBytes(f, s.m))
	s.ok(&ActivateLevel{2})
	s.ok(&RegisterNode{ID: n2})
	s.ok(&RegisterNode{ID: n3})
	q := s.view().Queue("/", "q")
	s.ok(&PlanMembers{q.ID, []NodeID{n1, n3}, nil, n3, q.Settings, ""})
	s.ok(&SetNodeState{ID: n1, State: NodeDraining})
	s.ok(&RegisterNode{ID: "n4/d"})
	s.ok(&ForgetNode{"n4/d", 0})
	s.ok(&DeclareQueue{Queue: Queue{Vhost: "/", Name: "short", Kind: Replicated, Members: []NodeID{n1}, Preferred: n1, Size: 3}})
	f.Add(snapshotBytes(f, s.m))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The checksum keeps most inputs out: mend it.
		if len(b) > 4 {
			b = binary.BigEndian.AppendUint32(bytes.Clone(b[:len(b)-4]), crc32.Checksum(b[:len(b)-4], castagnoli))
		}
		_, _, _ = readSnapshot(bytes.NewReader(b)) // must not panic
	})
}

func FuzzDecodeCalls(f *testing.F) {
	for _, m := range []interface{ fields(*fields) }{&position{id: n1, leader: n2, term: 3, last: 4}, &joinRequest{Node: n1, Forwarded: true}, &levelRequest{levelRaise, 2}} {
		var out fields
		m.fields(&out)
		f.Add(out.buf)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []interface{ fields(*fields) }{new(position), new(joinRequest), new(levelRequest)} {
			in := fields{buf: b, reading: true}
			m.fields(&in)
			if in.end() != nil {
				continue
			}
			var out, again fields
			m.fields(&out)
			in = fields{buf: out.buf, reading: true}
			m.fields(&in)
			if m.fields(&again); in.end() != nil || !bytes.Equal(again.buf, out.buf) {
				t.Fatalf("%T does not survive", m)
			}
		}
		_, _ = decodeIndex(b)
	})
}

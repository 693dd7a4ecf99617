package catalog

import (
	"bytes"
	"testing"

	"github.com/warrenmq/warren/auth"
)

func TestVhostLimits(t *testing.T) {
	s := newScript(t)
	get := func() VhostLimits { return s.view().Vhost("v").Limits }
	s.ok(&PutVhost{Vhost: Vhost{Name: "v", Limits: VhostLimits{Queues: auth.LimitOf(1)}}})
	if get() != (VhostLimits{}) {
		t.Errorf("a vhost begins with %+v", get())
	}
	put := &PutVhostLimits{Vhost: "v", Limits: VhostLimits{Connections: auth.LimitOf(5)}}
	if !s.ok(put).Changed || s.ok(put).Changed {
		t.Error("only the first of two equal commands changes something")
	}
	s.ok(&PutVhostLimits{Vhost: "v", Limits: VhostLimits{Queues: auth.LimitOf(2)}})
	s.ok(&PutVhost{Vhost: Vhost{Name: "v", Description: "settings do not touch limits"}})
	if want := (VhostLimits{auth.LimitOf(5), auth.LimitOf(2)}); get() != want {
		t.Errorf("%+v, want %+v", get(), want)
	}
	if s.ok(&DeleteVhostLimits{"v", "no-such-limit"}).Changed || !s.ok(&DeleteVhostLimits{"v", auth.LimitConnections}).Changed {
		t.Error("delete by name")
	}
	if want := (VhostLimits{Queues: auth.LimitOf(2)}); get() != want {
		t.Errorf("%+v, want %+v", get(), want)
	}
	s.ok(&PutVhostLimits{Vhost: "v", Limits: VhostLimits{Connections: auth.LimitOf(-1)}, Replace: true})
	if want := (VhostLimits{Connections: auth.LimitOf(-1)}); get() != want {
		t.Errorf("%+v, want %+v", get(), want)
	}
	s.ok(&DeleteVhostLimits{Vhost: "v"})
	if get() != (VhostLimits{}) {
		t.Errorf("%+v is left", get())
	}
	s.refused(&PutVhostLimits{Vhost: "gone"}, errNoVhost("gone").ReplyText())
	s.refused(&DeleteVhostLimits{Vhost: "gone"}, errNoVhost("gone").ReplyText())
}

func TestUserLimits(t *testing.T) {
	s := newScript(t)
	get := func() auth.UserLimits { return s.view().User("u").Limits }
	s.ok(&PutUser{auth.User{Name: "u", Limits: auth.UserLimits{Channels: auth.LimitOf(1)}}})
	if get() != (auth.UserLimits{}) {
		t.Errorf("a user begins with %+v", get())
	}
	put := &PutUserLimits{"u", auth.UserLimits{Channels: auth.LimitOf(9)}}
	if !s.ok(put).Changed || s.ok(put).Changed {
		t.Error("only the first of two equal commands changes something")
	}
	s.ok(&PutUserLimits{"u", auth.UserLimits{Connections: auth.LimitOf(0)}})
	s.ok(&PutUser{auth.User{Name: "u", Tags: []string{"t"}}})
	want := auth.UserLimits{Connections: auth.LimitOf(0), Channels: auth.LimitOf(9)}
	if get() != want {
		t.Errorf("%+v, want %+v", get(), want)
	}
	v, _, err := readSnapshot(bytes.NewReader(snapshotBytes(t, s.m)))
	if err != nil || v.User("u").Limits != want {
		t.Errorf("a snapshot gives %+v, %v", v, err)
	}
	s.ok(&DeleteUserLimits{"u", auth.LimitConnections})
	if want := (auth.UserLimits{Channels: auth.LimitOf(9)}); get() != want {
		t.Errorf("%+v, want %+v", get(), want)
	}
	if !s.ok(&DeleteUserLimits{User: "u"}).Changed || get() != (auth.UserLimits{}) {
		t.Errorf("%+v is left", get())
	}
	s.refused(&PutUserLimits{User: "gone"}, "NOT_FOUND - user 'gone' not found")
	s.refused(&DeleteUserLimits{User: "gone"}, "NOT_FOUND - user 'gone' not found")
}

func TestQueueLimitIgnoresNegatives(t *testing.T) {
	s := newScript(t)
	s.ok(&PutVhostLimits{Vhost: "/", Limits: VhostLimits{Queues: auth.LimitOf(-1)}})
	s.ok(declare("q1"))
	s.ok(&PutVhostLimits{Vhost: "/", Limits: VhostLimits{Queues: auth.LimitOf(0)}})
	s.refused(declare("q2"), "PRECONDITION_FAILED - cannot declare queue 'q2': queue limit in vhost '/' (0) is reached")
}

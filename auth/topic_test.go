package auth

import (
	"strings"
	"testing"
)

func TestTopicPermission(t *testing.T) {
	p, err := NewTopicPermission("u.1", "/", "amq.topic", "^a", `^{username}\.{vhost}$`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p    *TopicPermission
		a    Action
		key  string
		want string
	}{
		{nil, Write, "x.1", ""},
		{p, Write, "a.1", ""},
		{p, Write, "x.1", "ACCESS_REFUSED - write access to topic 'x.1' in exchange 'amq.topic' in vhost '/' refused for user 'u.1'"},
		{p, Read, "u.1./", ""},
		{p, Read, "ux1./", "ACCESS_REFUSED - read access to topic 'ux1./' in exchange 'amq.topic' in vhost '/' refused for user 'u.1'"},
	} {
		got := ""
		if !c.p.Allows(c.a, c.key) {
			got = replyText(RefuseKey(c.a, c.key, "amq.topic", "/", "u.1"))
		}
		if got != c.want {
			t.Errorf("%v %q: %q, want %q", c.a, c.key, got, c.want)
		}
	}
	if none, err := NewTopicPermission("u", "/", "x", "", ""); err != nil || none.Allows(Write, "") || none.Allows(Read, "a") {
		t.Errorf("an empty pattern matches: %v", err)
	}
	for _, bad := range []string{"(", strings.Repeat("a", PatternBytesMax+1)} {
		if _, err := NewTopicPermission("u", "/", "x", "", bad); err == nil {
			t.Errorf("pattern %.10q was accepted", bad)
		}
	}
}
